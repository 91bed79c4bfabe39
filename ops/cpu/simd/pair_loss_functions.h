// The losses of two numbers and their derivatives as functions of one pair, by kind. T is float or double.
#pragma once
#include "ops/cpu/pair_loss_kinds.h"
#include "ops/cpu/simd/math.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

template <class T>
TS_PORTABLE inline T above(T x, T least) {
  return x < least ? least : x;
}

template <PairLoss loss, class T>
TS_PORTABLE inline T pair_value(T x, T t, T p, T alpha) {
  const T d = x - t;
  const T size = vabs(d);
  if constexpr (loss == PairLoss::Square) return d * d;
  if constexpr (loss == PairLoss::Absolute) return size;
  if constexpr (loss == PairLoss::SmoothL1)
    return size < alpha ? T(0.5) * d * d / alpha : size - T(0.5) * alpha;
  if constexpr (loss == PairLoss::Huber)
    return size < alpha ? T(0.5) * d * d : alpha * (size - T(0.5) * alpha);
  if constexpr (loss == PairLoss::Likelihood) return -(t * x);
  if constexpr (loss == PairLoss::Entropy)
    return (t - T(1)) * above(vlog1p(-x), T(-100)) - t * above(vlog(x), T(-100));
  if constexpr (loss == PairLoss::LogitEntropy)
    return (T(1) - t) * x +
           (p == T(1) ? T(1) : T(1) + (p - T(1)) * t) * (softplus_rest(x) + positive_part(-x));
  if constexpr (loss == PairLoss::Divergence) return (t == T(0) ? T(0) : t * vlog(t)) - t * x;
  return vexp(t) * (t - x);  // LogDivergence
}

template <PairLoss loss, class T>
TS_PORTABLE inline T pair_by_input(T x, T t, T p, T alpha) {
  const T d = x - t;
  if constexpr (loss == PairLoss::Square) return T(2) * d;
  if constexpr (loss == PairLoss::Absolute) return d > T(0) ? T(1) : d < T(0) ? T(-1) : T(0);
  if constexpr (loss == PairLoss::SmoothL1) return d >= alpha ? T(1) : d <= -alpha ? T(-1) : d / alpha;
  if constexpr (loss == PairLoss::Huber) return d >= alpha ? alpha : d <= -alpha ? -alpha : d;
  if constexpr (loss == PairLoss::Likelihood) return -t;
  if constexpr (loss == PairLoss::Entropy) return d / above((T(1) - x) * x, T(1e-12));
  if constexpr (loss == PairLoss::LogitEntropy)
    return p == T(1) ? vsigmoid(x) - t : (p * t + T(1) - t) * vsigmoid(x) - p * t;
  if constexpr (loss == PairLoss::Divergence) return -t;
  return -vexp(t);  // LogDivergence
}

template <PairLoss loss, class T>
TS_PORTABLE inline T pair_by_target(T x, T t, T p, T alpha) {
  if constexpr (loss == PairLoss::Likelihood) return -x;
  if constexpr (loss == PairLoss::Entropy) return vlog(T(1) - x) - vlog(x);
  if constexpr (loss == PairLoss::LogitEntropy)
    return p == T(1) ? -x : (p - T(1)) * softplus_rest(x) + p * positive_part(-x) - positive_part(x);
  if constexpr (loss == PairLoss::Divergence) return vlog(t) + t / t - x;  // NaN at 0, as in PyTorch
  if constexpr (loss == PairLoss::LogDivergence) return vexp(t) * (t - x + T(1));
  return -pair_by_input<loss>(x, t, p, alpha);
}

template <PairLoss loss, PairPart part, class T>
TS_PORTABLE inline T pair_element(T x, T t, T p, T alpha) {
  if constexpr (part == PairPart::Value) return pair_value<loss>(x, t, p, alpha);
  if constexpr (part == PairPart::ByInput) return pair_by_input<loss>(x, t, p, alpha);
  return pair_by_target<loss>(x, t, p, alpha);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
