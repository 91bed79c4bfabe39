// The element-wise functions of three numbers. T is float or double.
#pragma once
#include "ops/cpu/simd/math.h"
#include "ops/cpu/ternary_ops.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

template <TernaryOp op, class T>
TS_PORTABLE inline T clamp_share(T x, T min, T max) {
  const bool apart = min < max;
  const bool in_order = min <= max;
  if constexpr (op == TernaryOp::ClampShare) {
    const T inside = (((x == min) | (x == max)) & apart) ? T(0.5) : T(1);
    return ((x < min) | (x > max)) ? T(0) : inside;
  } else if constexpr (op == TernaryOp::ClampMinShare) {
    const T tie = ((x == min) & apart) ? T(0.5) : T(0);
    return ((x < min) & in_order) ? T(1) : tie;
  } else {
    const T tie = ((x == max) & apart) ? T(0.5) : T(0);
    return ((min > max) | ((x > max) & in_order)) ? T(1) : tie;
  }
}

template <TernaryOp op, class T>
TS_PORTABLE inline T ternary_element(T a, T b, T c, T alpha) {
  if constexpr (op == TernaryOp::MaximumBackward || op == TernaryOp::MinimumBackward) {
    const T shared = b == c ? T(0.5) * a : a;
    const bool loses = op == TernaryOp::MaximumBackward ? b < c : b > c;
    return loses ? T(0) : shared;
  }
  if constexpr (op >= TernaryOp::ClampShare && op <= TernaryOp::ClampMaxShare)
    return clamp_share<op>(a, b, c);
  if constexpr (op == TernaryOp::Share) {
    const T part = a * b;
    return b == T(0) ? T(0) : part;
  }
  if constexpr (op == TernaryOp::Tie) return a == b ? T(1) : T(0);
  if constexpr (op == TernaryOp::TieOrNan) return ((a == b) | (a != a)) ? T(1) : T(0);
  if constexpr (op == TernaryOp::Quotient) {
    const T q = a / b;
    return c * (b == T(0) ? T(0) : q);
  }
  if constexpr (op == TernaryOp::MaxNorm) {
    const T factor = alpha / (b + T(1e-7));
    return ((a > T(0)) & (b > alpha)) ? factor : T(1);
  }
  if constexpr (op == TernaryOp::Deviation || op == TernaryOp::Exp) {
    const T rest = c - c == T(0) ? c : T(0);
    if constexpr (op == TernaryOp::Exp) return a * vexp(b - rest);
    return (b - rest) * (alpha * a);
  }
  return a;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
