// Softmax and layer norm of one contiguous row, which stays in the first-level cache between passes.
#include "ops/cpu/simd/math.h"
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

// Partial results: independent chains for the adders. A row's float sums are short (n / kLanes terms each).
constexpr i64 kLanes = 64;

template <class T, class F>
T sum_row(i64 n, F f) {
  T acc[kLanes] = {};
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (i64 j = 0; j < kLanes; ++j) acc[j] += f(i + j);
  for (i64 j = 0; i + j < n; ++j) acc[j] += f(i + j);
  for (i64 w = kLanes / 2; w > 0; w /= 2)
    for (i64 j = 0; j < w; ++j) acc[j] += acc[j + w];
  return acc[0];
}

template <class T>
T max_row(const T* x, i64 n) {
  T acc[kLanes];
  for (i64 j = 0; j < kLanes; ++j) acc[j] = -static_cast<T>(__builtin_inf());
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (i64 j = 0; j < kLanes; ++j) acc[j] = x[i + j] > acc[j] ? x[i + j] : acc[j];
  for (i64 j = 0; i + j < n; ++j) acc[j] = x[i + j] > acc[j] ? x[i + j] : acc[j];
  T best = acc[0];
  for (i64 j = 1; j < kLanes; ++j) best = acc[j] > best ? acc[j] : best;
  return best;
}

template <class T>
void softmax(T* out, const T* x, i64 n) {
  const T m = max_row(x, n);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = vexp(x[i] - m);
  const T scale = T(1) / sum_row<T>(n, [out](i64 i) { return out[i]; });
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] *= scale;
}

template <class T>
void log_softmax(T* out, const T* x, i64 n) {
  const T m = max_row(x, n);
  const T log_sum = vlog(sum_row<T>(n, [x, m](i64 i) { return vexp(x[i] - m); }));
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = (x[i] - m) - log_sum;
}

template <class T>
void softmax_backward(T* dx, const T* dy, const T* y, i64 n) {
  const T dot = sum_row<T>(n, [dy, y](i64 i) { return dy[i] * y[i]; });
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

template <class T>
void log_softmax_backward(T* dx, const T* dy, const T* y, i64 n) {
  const T total = sum_row<T>(n, [dy](i64 i) { return dy[i]; });
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = dy[i] - vexp(y[i]) * total;
}

// The mean is first taken of x, then corrected by the mean of what is left: a float sum of values near 1e4
// alone would be off by more than the deviation's last digits.
template <class T>
void layer_norm(T* y, const T* x, const T* weight, const T* bias, i64 n, double eps, T* stats) {
  const T count = static_cast<T>(n);
  T mean = sum_row<T>(n, [x](i64 i) { return x[i]; }) / count;
  const T left = sum_row<T>(n, [x, mean](i64 i) { return x[i] - mean; }) / count;
  const T square = sum_row<T>(n, [x, mean](i64 i) { return (x[i] - mean) * (x[i] - mean); }) / count;
  const T var = square - left * left;
  const T rstd = T(1) / vsqrt((var > T(0) ? var : var != var ? var : T(0)) + static_cast<T>(eps));
  stats[0] = mean + left;
  stats[1] = rstd;
  const T shift = left;
  if (weight != nullptr && bias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = ((x[i] - mean) - shift) * rstd * weight[i] + bias[i];
  } else if (weight != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = ((x[i] - mean) - shift) * rstd * weight[i];
  } else if (bias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = ((x[i] - mean) - shift) * rstd + bias[i];
  } else {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) y[i] = ((x[i] - mean) - shift) * rstd;
  }
}

// xh = (x - mean) rstd, g = dy weight: dx = rstd (g - mean(g) - xh mean(g xh)), dweight += dy xh, dbias +=
// dy.
template <bool has_weight, class T>
void input_gradient(T* dx, const T* dy, const T* x, const T* weight, i64 n, const T* stats) {
  const T mean = stats[0];
  const T rstd = stats[1];
  T a[kLanes] = {};
  T b[kLanes] = {};
  const auto step = [&](i64 i, i64 j) {
    const T g = has_weight ? dy[i] * weight[i] : dy[i];
    a[j] += g;
    b[j] += g * ((x[i] - mean) * rstd);
  };
  i64 i = 0;
  for (; i + kLanes <= n; i += kLanes)
    for (i64 j = 0; j < kLanes; ++j) step(i + j, j);
  for (i64 j = 0; i + j < n; ++j) step(i + j, j);
  for (i64 w = kLanes / 2; w > 0; w /= 2)
    for (i64 j = 0; j < w; ++j) {
      a[j] += a[j + w];
      b[j] += b[j + w];
    }
  const T mean_g = a[0] / static_cast<T>(n);
  const T mean_gx = b[0] / static_cast<T>(n);
#pragma GCC ivdep
  for (i64 k = 0; k < n; ++k) {
    const T g = has_weight ? dy[k] * weight[k] : dy[k];
    dx[k] = rstd * (g - mean_g - (x[k] - mean) * rstd * mean_gx);
  }
}

template <class T>
void layer_norm_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* weight, i64 n,
                         const T* stats) {
  const T mean = stats[0];
  const T rstd = stats[1];
  if (dweight != nullptr && dbias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      dweight[i] += dy[i] * ((x[i] - mean) * rstd);
      dbias[i] += dy[i];
    }
  } else if (dweight != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dweight[i] += dy[i] * ((x[i] - mean) * rstd);
  } else if (dbias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dbias[i] += dy[i];
  }
  if (dx == nullptr) return;
  if (weight != nullptr) {
    input_gradient<true>(dx, dy, x, weight, n, stats);
  } else {
    input_gradient<false>(dx, dy, x, weight, n, stats);
  }
}

template <class T>
constexpr RowBlocks<T> blocks() {
  return {&softmax<T>,    &log_softmax<T>,        &softmax_backward<T>, &log_softmax_backward<T>,
          &layer_norm<T>, &layer_norm_backward<T>};
}

}  // namespace

const RowTable& row_table() {
  static constexpr RowTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
