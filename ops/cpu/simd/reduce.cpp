// Reductions of contiguous blocks. Sums go into several double accumulators, so that additions overlap and
// the rounding of f32 plays no part.
#include "ops/cpu/simd/tables.h"
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

constexpr i64 kLanes = 32;  // partial results per block: four 512-bit registers of doubles
constexpr int kVectors = kLanes / kWidth<double>;

// As many numbers as a register has doubles. Half a register of floats is loaded at once: compilers that are
// left to vectorize load a whole one and take it apart.
inline Vector<double> as_doubles(const float* x) {
  typedef float Half __attribute__((vector_size(kVectorBytes / 2), aligned(alignof(float)), may_alias));
  return __builtin_convertvector(*reinterpret_cast<const Half*>(x), Vector<double>);
}
inline Vector<double> as_doubles(const double* x) { return load(x); }

// Lane j has every 32nd number from the j-th on, in registers of any width.
template <class T, class F>
double sum_mapped(const T* x, i64 n, F f) {
  Vector<double> sums[kVectors] = {};
  i64 i = 0;
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

// Column sums, a strip of columns at a time: the strip's accumulators stay in registers over the rows.
template <class T, class F>
void columns(double* acc, const T* x, i64 rows, i64 stride, i64 n, F f) {
  i64 c = 0;
  for (; c + kLanes <= n; c += kLanes) {
    Vector<double> strip[kVectors];
    for (int v = 0; v < kVectors; ++v) strip[v] = load(acc + c + v * kWidth<double>);
    const T* p = x + c;
    for (i64 r = 0; r < rows; ++r, p += stride)
      for (int v = 0; v < kVectors; ++v) {
        const i64 j = v * kWidth<double>;
        strip[v] += f(as_doubles(p + j), c + j);
      }
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
