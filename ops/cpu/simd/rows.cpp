// Softmax and layer norm of one contiguous row, which stays in the first-level cache between passes.
#include <type_traits>

#include "ops/cpu/norm_eps.h"
#include "ops/cpu/simd/exp.h"
#include "ops/cpu/simd/math.h"
#include "ops/cpu/simd/row_sums.h"
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

// out = exp(x - m), and the sum of it.
template <class T>
T exp_row(T* out, const T* x, i64 n, T m) {
  constexpr i64 w = kWidth<T>;
  Vector<T> a = {};
  Vector<T> b = {};
  i64 i = 0;
  for (; i + 2 * w <= n; i += 2 * w) {
    const Vector<T> u = exp_vector(load(x + i) - m);
    const Vector<T> v = exp_vector(load(x + i + w) - m);
    store(out + i, u);
    store(out + i + w, v);
    a += u;
    b += v;
  }
  T rest = T(0);
  for (; i < n; ++i) {
    out[i] = vexp_flushed(x[i] - m);
    rest += out[i];
  }
  return sum_of<T>(a + b) + rest;
}

template <class T>
void softmax(T* out, const T* x, i64 n) {
  const T scale = T(1) / exp_row(out, x, n, max_row(x, n));
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] *= scale;
}

template <class T>
void log_softmax(T* out, const T* x, i64 n) {
  const T m = max_row(x, n);
  const T sum = sum_row<T>(
      n, [x, m](i64 i) { return exp_vector(load(x + i) - m); },
      [x, m](i64 i) { return vexp_flushed(x[i] - m); });
  const T log_sum = vlog(sum);
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = (x[i] - m) - log_sum;
}

template <class T>
void softmax_backward(T* dx, const T* dy, const T* y, i64 n) {
  const T dot = sum_row<T>(
      n, [dy, y](i64 i) { return load(dy + i) * load(y + i); }, [dy, y](i64 i) { return dy[i] * y[i]; });
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = y[i] * (dy[i] - dot);
}

template <class T>
void log_softmax_backward(T* dx, const T* dy, const T* y, i64 n) {
  const T total = sum_row<T>(
      n, [dy](i64 i) { return load(dy + i); }, [dy](i64 i) { return dy[i]; });
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) dx[i] = dy[i] - vexp(y[i]) * total;
}

template <bool has_weight, bool has_bias, class T>
void normalized(T* y, const T* x, const T* weight, const T* bias, i64 n, const T (&shift)[2], T rstd) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) {
    T v = ((x[i] - shift[0]) - shift[1]) * rstd;
    if (has_weight) v *= weight[i];
    if (has_bias) v += bias[i];
    y[i] = v;
  }
}

// Deviations from a first mean, which a float sum of values near 1e4 gives only roughly: their sum corrects
// the mean, and their squares less that correction are the variance.
template <class T>
void layer_norm(T* y, const T* x, const T* weight, const T* bias, i64 n, double eps, T* stats) {
  constexpr i64 w = kWidth<T>;
  const T count = static_cast<T>(n);
  const T mean = sum_row<T>(
                     n, [x](i64 i) { return load(x + i); }, [x](i64 i) { return x[i]; }) /
                 count;
  Vector<T> sum[2] = {};
  Vector<T> square[2] = {};
  i64 i = 0;
  for (; i + 2 * w <= n; i += 2 * w)
    for (int v = 0; v < 2; ++v) {
      const Vector<T> d = load(x + i + v * w) - mean;
      sum[v] += d;
      square[v] += d * d;
    }
  T rest = T(0);
  T rest_square = T(0);
  for (; i < n; ++i) {
    const T d = x[i] - mean;
    rest += d;
    rest_square += d * d;
  }
  const T left = (sum_of<T>(sum[0] + sum[1]) + rest) / count;
  const T var = (sum_of<T>(square[0] + square[1]) + rest_square) / count - left * left;
  const T rstd = T(1) / vsqrt((var < T(0) ? T(0) : var) + static_cast<T>(eps));
  stats[0] = mean + left;
  stats[1] = rstd;
  const T shift[2] = {mean, left};
  if (weight != nullptr && bias != nullptr) {
    normalized<true, true>(y, x, weight, bias, n, shift, rstd);
  } else if (weight != nullptr) {
    normalized<true, false>(y, x, weight, bias, n, shift, rstd);
  } else if (bias != nullptr) {
    normalized<false, true>(y, x, weight, bias, n, shift, rstd);
  } else {
    normalized<false, false>(y, x, weight, bias, n, shift, rstd);
  }
}

// dweight += dy normal(i), dbias += dy; either may be null.
template <class T, class Normal>
void add_parameters(T* dweight, T* dbias, const T* dy, i64 n, Normal normal) {
  if (dweight != nullptr && dbias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      dweight[i] += dy[i] * normal(i);
      dbias[i] += dy[i];
    }
  } else if (dweight != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dweight[i] += dy[i] * normal(i);
  } else if (dbias != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dbias[i] += dy[i];
  }
}
template <class T>
void norm_parameters(T* dweight, T* dbias, const T* dy, const T* normal, i64 n) {
  add_parameters(dweight, dbias, dy, n, [normal](i64 i) { return normal[i]; });
}

// xh = (x - mean) rstd, g = dy weight: dx = rstd (g - mean(g) - xh mean(g xh)), dweight += dy xh, dbias +=
// dy. The mean as a number of type T is off by its last digit; what its deviations add up to corrects it here
// as in the forward pass.
template <bool has_weight, bool is_far, class T>
struct RowGradient {
  const T* dy;
  const T* x;
  const T* weight;
  i64 n;
  T mean;
  T rstd;
  T left = T(0);  // of the mean
  T mean_g = T(0);
  T slope = T(0);

  T g(i64 i) const { return has_weight ? dy[i] * weight[i] : dy[i]; }
  T away(i64 i) const { return is_far ? (x[i] - mean) - left : x[i] - mean; }
  void correct() {
    left = sum_row<T>(
               n, [this](i64 i) { return load(x + i) - mean; }, [this](i64 i) { return x[i] - mean; }) /
           static_cast<T>(n);
  }
  void add_up() {
    T sums[2];
    add_row<T, 2, 1>(
        n, sums,
        [this](i64 i, Vector<T>* to) {
          Vector<T> v = load(dy + i);
          if (has_weight) v *= load(weight + i);
          Vector<T> d = load(x + i) - mean;
          if (is_far) d -= left;
          to[0] += v;
          to[1] += v * d;
        },
        [this](i64 i, T* to) {
          to[0] += g(i);
          to[1] += g(i) * away(i);
        });
    mean_g = sums[0] / static_cast<T>(n);
    slope = sums[1] / static_cast<T>(n) * rstd * rstd;
  }
  void input(T* dx) const {
    if (n == 1) {
      // Exactly nothing, or NaN where a number (rstd among them) is not finite; the fused multiplication
      // below would leave its rounding, times rstd.
      dx[0] = (mean_g - mean_g) + (x[0] - mean) * rstd * T(0);
      return;
    }
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) dx[i] = rstd * (g(i) - mean_g - away(i) * slope);
  }
  void all(T* dx, T* dweight, T* dbias) const {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) {
      const T d = away(i);
      dweight[i] += dy[i] * (d * rstd);
      dbias[i] += dy[i];
      dx[i] = rstd * (g(i) - mean_g - d * slope);
    }
  }
};

template <bool has_weight, bool is_far, class T>
void run(RowGradient<has_weight, is_far, T> row, T* dx, T* dweight, T* dbias) {
  if (is_far) row.correct();
  if (dx != nullptr) row.add_up();
  if (dx != nullptr && dweight != nullptr && dbias != nullptr && row.n > 1)
    return row.all(dx, dweight, dbias);
  add_parameters(dweight, dbias, row.dy, row.n, [row](i64 i) { return row.away(i) * row.rstd; });
  if (dx != nullptr) row.input(dx);
}

template <class T>
void layer_norm_backward(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* weight, i64 n,
                         const T* stats) {
  const auto gradient = [&](auto has_weight, auto is_far) {
    run(RowGradient<has_weight.value, is_far.value, T>{dy, x, weight, n, stats[0], stats[1]}, dx, dweight,
        dbias);
  };
  const auto with_weight = [&](auto is_far) {
    if (weight != nullptr) return gradient(std::true_type(), is_far);
    gradient(std::false_type(), is_far);
  };
  if (mean_is_rough(stats[0], stats[1])) return with_weight(std::true_type());
  with_weight(std::false_type());
}

template <class T>
constexpr RowBlocks<T> blocks() {
  return {&softmax<T>,    &log_softmax<T>,         &softmax_backward<T>, &log_softmax_backward<T>,
          &layer_norm<T>, &layer_norm_backward<T>, &norm_parameters<T>};
}

}  // namespace

const RowTable& row_table() {
  static constexpr RowTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
