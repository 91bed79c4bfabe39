// Reductions of contiguous blocks. Sums go into several double accumulators, so that additions overlap and
// the rounding of f32 plays no part.
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

constexpr i64 kLanes = 32;  // partial results per block: four 512-bit registers of doubles

template <class T, class F>
double sum_mapped(const T* x, i64 n, F f) {
  double acc[kLanes] = {};
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (i64 j = 0; j < kLanes; ++j) acc[j] += f(static_cast<double>(x[i + j]));
  for (i64 j = 0; i + j < n; ++j) acc[j] += f(static_cast<double>(x[i + j]));
  for (i64 w = kLanes / 2; w > 0; w /= 2)
    for (i64 j = 0; j < w; ++j) acc[j] += acc[j + w];
  return acc[0];
}

template <class T>
double sum(const T* x, i64 n) {
  return sum_mapped(x, n, [](double v) { return v; });
}
template <class T>
double squares(const T* x, i64 n, double centre) {
  return sum_mapped(x, n, [centre](double v) {
    const double d = v - centre;
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
constexpr i64 kStrip = 32;

template <class T, class F>
void columns(double* acc, const T* x, i64 rows, i64 stride, i64 n, F f) {
  i64 c = 0;
  for (; c + kStrip <= n; c += kStrip) {
    double strip[kStrip];
    for (i64 j = 0; j < kStrip; ++j) strip[j] = acc[c + j];
    const T* p = x + c;
    for (i64 r = 0; r < rows; ++r, p += stride)
      for (i64 j = 0; j < kStrip; ++j) strip[j] += f(static_cast<double>(p[j]), c + j);
    for (i64 j = 0; j < kStrip; ++j) acc[c + j] = strip[j];
  }
  for (i64 r = 0; r < rows; ++r)
    for (i64 j = c; j < n; ++j) acc[j] += f(static_cast<double>(x[r * stride + j]), j);
}

template <class T>
void add_columns(double* acc, const T* x, i64 rows, i64 stride, i64 n) {
  columns(acc, x, rows, stride, n, [](double v, i64) { return v; });
}
template <class T>
void add_square_columns(double* acc, const double* centre, const T* x, i64 rows, i64 stride, i64 n) {
  columns(acc, x, rows, stride, n, [centre](double v, i64 j) {
    const double d = v - centre[j];
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
