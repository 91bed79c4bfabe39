// Losses: functions of a prediction and a target, and rows over classes.
#include <array>
#include <utility>

#include "ops/cpu/pair_loss_kinds.h"
#include "ops/cpu/simd/exp.h"
#include "ops/cpu/simd/loss_table.h"
#include "ops/cpu/simd/math.h"
#include "ops/cpu/simd/row_sums.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

using i64 = std::int64_t;

// log(1 + exp(-|x|)): what softplus is above the larger of x and 0.
inline float softplus_rest(float x) {
  const float e = vexp_flushed(-vabs(x));
  const float u = 1.0f + e;
  return vlog(u) - ((u - 1.0f) - e) / u;  // what rounding u took away
}
inline double softplus_rest(double x) { return ::log1p(::exp(-vabs(x))); }
template <class T>
inline T positive_part(T x) {
  return x < T(0) ? T(0) : x;
}
template <class T>
inline T above(T x, T least) {
  return x < least ? least : x;
}

template <PairLoss loss, class T>
inline T value(T x, T t, T p, T alpha) {
  const T d = x - t;
  const T size = vabs(d);
  if constexpr (loss == PairLoss::Square) return d * d;
  if constexpr (loss == PairLoss::Absolute) return size;
  if constexpr (loss == PairLoss::SmoothL1)
    return size < alpha ? T(0.5) * d * d / alpha : size - T(0.5) * alpha;
  if constexpr (loss == PairLoss::Huber)
    return size < alpha ? T(0.5) * d * d : alpha * (size - T(0.5) * alpha);
  if constexpr (loss == PairLoss::Entropy)
    return (t - T(1)) * above(vlog1p(-x), T(-100)) - t * above(vlog(x), T(-100));
  if constexpr (loss == PairLoss::LogitEntropy)
    return (T(1) - t) * x + (T(1) + (p - T(1)) * t) * (softplus_rest(x) + positive_part(-x));
  if constexpr (loss == PairLoss::Divergence) return (t == T(0) ? T(0) : t * vlog(t)) - t * x;
  if constexpr (loss == PairLoss::LogDivergence) return vexp(t) * (t - x);
}

template <PairLoss loss, class T>
inline T by_input(T x, T t, T p, T alpha) {
  const T d = x - t;
  if constexpr (loss == PairLoss::Square) return T(2) * d;
  if constexpr (loss == PairLoss::Absolute) return d > T(0) ? T(1) : d < T(0) ? T(-1) : T(0);
  if constexpr (loss == PairLoss::SmoothL1) return d >= alpha ? T(1) : d <= -alpha ? T(-1) : d / alpha;
  if constexpr (loss == PairLoss::Huber) return d >= alpha ? alpha : d <= -alpha ? -alpha : d;
  if constexpr (loss == PairLoss::Entropy) return d / above((T(1) - x) * x, T(1e-12));
  if constexpr (loss == PairLoss::LogitEntropy) return (p * t + T(1) - t) * vsigmoid(x) - p * t;
  if constexpr (loss == PairLoss::Divergence) return -t;
  if constexpr (loss == PairLoss::LogDivergence) return -vexp(t);
}

template <PairLoss loss, class T>
inline T by_target(T x, T t, T p, T alpha) {
  if constexpr (loss == PairLoss::Entropy) return vlog(T(1) - x) - vlog(x);
  if constexpr (loss == PairLoss::LogitEntropy)
    return p == T(1) ? -x : (p - T(1)) * softplus_rest(x) + p * positive_part(-x) - positive_part(x);
  if constexpr (loss == PairLoss::Divergence) return vlog(t) + t / t - x;  // NaN at 0, as in PyTorch
  if constexpr (loss == PairLoss::LogDivergence) return vexp(t) * (t - x + T(1));
  return -by_input<loss>(x, t, p, alpha);
}

template <PairLoss loss, PairPart part, class T>
inline T pair_element(T x, T t, T p, T alpha) {
  if constexpr (part == PairPart::Value) return value<loss>(x, t, p, alpha);
  if constexpr (part == PairPart::ByInput) return by_input<loss>(x, t, p, alpha);
  if constexpr (part == PairPart::ByTarget) return by_target<loss>(x, t, p, alpha);
}

template <PairLoss loss, PairPart part, class T>
void pair(T* out, const T* x, const T* t, const T* p, i64 n, T alpha, T scale) {
  if (loss == PairLoss::LogitEntropy && p != nullptr) {
#pragma GCC ivdep
    for (i64 i = 0; i < n; ++i) out[i] = scale * pair_element<loss, part>(x[i], t[i], p[i], alpha);
    return;
  }
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = scale * pair_element<loss, part>(x[i], t[i], T(1), alpha);
}

constexpr int kParts = static_cast<int>(PairPart::kCount);
constexpr int kPairs = static_cast<int>(PairLoss::kCount) * kParts;

template <class T, int... i>
constexpr std::array<typename LossBlocks<T>::Pair, kPairs> pairs(std::integer_sequence<int, i...>) {
  return {&pair<static_cast<PairLoss>(i / kParts), static_cast<PairPart>(i % kParts), T>...};
}
template <class T>
constexpr std::array<typename LossBlocks<T>::Pair, kPairs> kPairTable =
    pairs<T>(std::make_integer_sequence<int, kPairs>());

template <class T>
void raise(T* top, const T* x, i64 n) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) top[i] = x[i] > top[i] ? x[i] : top[i];
}

template <class T>
void add_exp(T* sum, const T* x, const T* top, i64 n) {
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  for (; i + w <= n; i += w) store(sum + i, load(sum + i) + exp_vector(load(x + i) - load(top + i)));
  for (; i < n; ++i) sum[i] += vexp_flushed(x[i] - top[i]);
}

template <class T>
void add_scaled(T* sum, const T* x, i64 n, T factor) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) sum[i] += factor * x[i];
}

template <class T>
void class_gradient(T* dx, const T* x, const T* lse, const T* a, const T* b, i64 n, T shift) {
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  for (; i + w <= n; i += w)
    store(dx + i, exp_vector(load(x + i) - load(lse + i)) * load(a + i) - load(b + i) * shift);
  for (; i < n; ++i) dx[i] = vexp_flushed(x[i] - lse[i]) * a[i] - b[i] * shift;
}

template <class T>
T row_exp(const T* x, i64 n, T top) {
  return sum_row<T>(
      n, [=](i64 i) { return exp_vector(load(x + i) - top); },
      [=](i64 i) { return vexp_flushed(x[i] - top); });
}

template <class T>
void row_gradient(T* dx, const T* x, const T* weight, i64 n, const T* lse_a_b) {
  const T lse = lse_a_b[0];
  const T a = lse_a_b[1];
  const T b = lse_a_b[2];
  constexpr i64 w = kWidth<T>;
  i64 i = 0;
  if (weight == nullptr) {
    for (; i + w <= n; i += w) store(dx + i, exp_vector(load(x + i) - lse) * a - b);
    for (; i < n; ++i) dx[i] = vexp_flushed(x[i] - lse) * a - b;
    return;
  }
  for (; i + w <= n; i += w) store(dx + i, exp_vector(load(x + i) - lse) * a - load(weight + i) * b);
  for (; i < n; ++i) dx[i] = vexp_flushed(x[i] - lse) * a - weight[i] * b;
}

template <class T>
constexpr LossBlocks<T> blocks() {
  return {kPairTable<T>.data(), &raise<T>,   &add_exp<T>, &add_scaled<T>,
          &class_gradient<T>,   &max_row<T>, &row_exp<T>, &row_gradient<T>};
}

}  // namespace

const LossTable& loss_table() {
  static constexpr LossTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
