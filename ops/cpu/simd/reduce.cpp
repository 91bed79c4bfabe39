// Reductions of contiguous blocks. Sums go into several double accumulators, so that additions overlap and
// the rounding of f32 plays no part.
#include "ops/cpu/simd/tables.h"
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

constexpr i64 kLanes = 32;  // partial results per block: four 512-bit registers of doubles
constexpr int kVectors = kLanes / kWidth<double>;

// As many numbers as a register has doubles. Put in one by one, which compilers make one instruction of; of a
// conversion of half a register of floats GCC 12 makes two and a trip through memory.
inline Vector<double> as_doubles(const float* x) {
  Vector<double> v{};
  for (int i = 0; i < kWidth<double>; ++i) v[i] = static_cast<double>(x[i]);
  return v;
}
inline Vector<double> as_doubles(const double* x) { return load(x); }

// A row is read in four shares at once where each has pages of its own: the processor reads ahead along every
// share, which one alone would not keep busy.
constexpr i64 kShares = 4;
constexpr i64 kPage = 4096;

// Adds what numbers [i, i + kLanes / kShares) of every share map to: those of share s to its quarter of the
// sums.
template <class T, class F>
inline void add_of_shares(Vector<double>* sums, const T* x, i64 share, F f) {
  constexpr int each = kVectors / kShares;
  for (int v = 0; v < kVectors; ++v)
    sums[v] += f(as_doubles(x + v / each * share + v % each * kWidth<double>));
}

// Lane j has every 32nd number from the j-th on, or every 8th of a share, in registers of any width.
template <class T, class F>
double sum_mapped(const T* x, i64 n, F f) {
  Vector<double> sums[kVectors] = {};
  i64 i = 0;
  if (n * static_cast<i64>(sizeof(T)) >= kShares * kPage) {
    const i64 share = n / kLanes * (kLanes / kShares);
    for (i64 k = 0; k < share; k += kLanes / kShares) add_of_shares(sums, x + k, share, f);
    i = kShares * share;
  }
  for (; i + kLanes <= n; i += kLanes)
    for (int v = 0; v < kVectors; ++v) sums[v] += f(as_doubles(x + i + v * kWidth<double>));
  double acc[kLanes];
  for (int v = 0; v < kVectors; ++v) store(acc + v * kWidth<double>, sums[v]);
  for (i64 j = 0; i + j < n; ++j) acc[j] += f(static_cast<double>(x[i + j]));
  for (i64 w = kLanes / 2; w > 0; w /= 2)
    for (i64 j = 0; j < w; ++j) acc[j] += acc[j + w];
  return acc[0];
}

template <class T>
double sum(const T* x, i64 n) {
  return sum_mapped(x, n, [](auto v) { return v; });
}
template <class T>
double squares(const T* x, i64 n, double centre) {
  return sum_mapped(x, n, [centre](auto v) {
    const auto d = v - centre;
    return d * d;
  });
}

// A comparison with NaN is false, which drops it; the count of NaN brings it back.
template <bool largest, class T>
T extreme(const T* x, i64 n) {
  const T start = largest ? -static_cast<T>(__builtin_inf()) : static_cast<T>(__builtin_inf());
  T acc[kLanes];
  int nan[kLanes] = {};
  for (i64 j = 0; j < kLanes; ++j) acc[j] = start;
  const auto step = [&](i64 i, i64 j) {
    const T v = x[i + j];
    acc[j] = (largest ? v > acc[j] : v < acc[j]) ? v : acc[j];
    nan[j] |= v != v;
  };
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (i64 j = 0; j < kLanes; ++j) step(i, j);
  for (i64 j = 0; i + j < n; ++j) step(i, j);
  int any = 0;
  T best = start;
  for (i64 j = 0; j < kLanes; ++j) {
    best = (largest ? acc[j] > best : acc[j] < best) ? acc[j] : best;
    any |= nan[j];
  }
  return any ? static_cast<T>(__builtin_nan("")) : best;
}

// Column sums, a strip of columns at a time: the strip's accumulators stay in registers over the rows, of
// which the first of every share come first.
template <class T, class F>
void columns(double* acc, const T* x, i64 rows, i64 stride, i64 n, F f) {
  const i64 share = rows / kShares;
  i64 c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    Vector<double> strip[kVectors];
    for (int v = 0; v < kVectors; ++v) strip[v] = load(acc + c + v * kWidth<double>);
    const auto add = [&](const T* p) {
      for (int v = 0; v < kVectors; ++v) {
        const i64 j = v * kWidth<double>;
        strip[v] += f(as_doubles(p + j), c + j);
      }
    };
    for (i64 r = 0; r < share; ++r)
      for (i64 s = 0; s < kShares; ++s) add(x + c + (s * share + r) * stride);
    for (i64 r = kShares * share; r < rows; ++r) add(x + c + r * stride);
    for (int v = 0; v < kVectors; ++v) store(acc + c + v * kWidth<double>, strip[v]);
  }
  for (i64 r = 0; r < rows; ++r)
    for (i64 j = c; j < n; ++j) acc[j] += f(static_cast<double>(x[r * stride + j]), j);
}

inline double at(const double* x, double) { return *x; }
inline Vector<double> at(const double* x, Vector<double>) { return load(x); }

template <class T>
void add_columns(double* acc, const T* x, i64 rows, i64 stride, i64 n) {
  columns(acc, x, rows, stride, n, [](auto v, i64) { return v; });
}
template <class T>
void add_square_columns(double* acc, const double* centre, const T* x, i64 rows, i64 stride, i64 n) {
  columns(acc, x, rows, stride, n, [centre](auto v, i64 j) {
    const auto d = v - at(centre + j, v);
    return d * d;
  });
}
template <bool largest, class T>
void extreme_columns(T* acc, const T* x, i64 rows, i64 stride, i64 n) {
  for (i64 r = 0; r < rows; ++r) {
    const T* p = x + r * stride;
    for (i64 j = 0; j < n; ++j) {
      const T v = p[j];
      const T a = acc[j];
      const T m = (largest ? v > a : v < a) ? v : a;
      acc[j] = v != v ? v : m;  // an accumulator that is NaN stays: the comparison is false
    }
  }
}

template <class T>
constexpr ReduceBlocks<T> blocks() {
  return {&sum<T>,
          &squares<T>,
          &extreme<true, T>,
          &extreme<false, T>,
          &add_columns<T>,
          &add_square_columns<T>,
          &extreme_columns<true, T>,
          &extreme_columns<false, T>};
}

}  // namespace

const ReduceTable& reduce_table() {
  static constexpr ReduceTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
