// The element-wise operations as functions of one element, by op. T is float or double.
#pragma once
#include <limits>

#include "ops/cpu/pointwise_ops.h"
#include "ops/cpu/simd/normal.h"
#include "ops/cpu/simd/power.h"
#include "ops/cpu/simd/trigonometry.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

constexpr double kGeluTanhK = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kGeluTanhC = 0.044715;

// (1 + tanh(u)) / 2 = sigmoid(2 u), which costs one exponential and one division.
template <class T>
TS_PORTABLE inline T gelu_tanh_gate(T x) {
  return vsigmoid(T(2 * kGeluTanhK) * (x + T(kGeluTanhC) * x * x * x));
}
template <class T>
TS_PORTABLE inline T gelu_tanh_slope(T x) {
  const T s = gelu_tanh_gate(x);
  const T du = T(kGeluTanhK) * (T(1) + T(3 * kGeluTanhC) * x * x);
  return s + T(2) * x * (s * (T(1) - s)) * du;
}
template <class T>
TS_PORTABLE inline T gelu_tanh_curvature(T x) {
  const T g = gelu_tanh_gate(x);
  const T du = T(kGeluTanhK) * (T(1) + T(3 * kGeluTanhC) * x * x);
  const T ddu = T(6 * kGeluTanhK * kGeluTanhC) * x;
  const T s = T(4) * g * (T(1) - g);
  return s * du + T(0.5) * x * s * (ddu - T(2) * (T(2) * g - T(1)) * du * du);
}
// log(1 + exp(x)), x itself above 20: of floats nothing else is left there.
TS_PORTABLE inline float softplus(float x) { return positive_part(x) + softplus_rest(x); }
TS_PORTABLE inline double softplus(double x) { return x > 20.0 ? x : ::log1p(::exp(x)); }

template <UnaryOp op, class T>
TS_PORTABLE inline T unary_simple(T x, T alpha, T beta) {
  if constexpr (op == UnaryOp::Neg) return -x;
  if constexpr (op == UnaryOp::Abs) return vabs(x);
  if constexpr (op == UnaryOp::Square) return x * x;
  if constexpr (op == UnaryOp::Sign) return x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0);
  if constexpr (op == UnaryOp::Relu) return x < T(0) ? T(0) : x;
  if constexpr (op == UnaryOp::Affine) return alpha * x + beta;
  if constexpr (op == UnaryOp::Clamp) {
    const T low = x < alpha ? alpha : x;
    return low > beta ? beta : low;
  }
  if constexpr (op == UnaryOp::Step) return x > T(0) ? T(1) : T(0);
  if constexpr (op == UnaryOp::Sqrt) return vsqrt(x);
  if constexpr (op == UnaryOp::Rsqrt) return T(1) / vsqrt(x);
  if constexpr (op == UnaryOp::Reciprocal) return T(1) / x;
  if constexpr (op == UnaryOp::LeakyRelu) return x > T(0) ? x : alpha * x;
  if constexpr (op == UnaryOp::Floor) return sizeof(T) == 4 ? T(::floorf(float(x))) : T(::floor(x));
  if constexpr (op == UnaryOp::Ceil) return sizeof(T) == 4 ? T(::ceilf(float(x))) : T(::ceil(x));
  if constexpr (op == UnaryOp::Round) return sizeof(T) == 4 ? T(::rintf(float(x))) : T(::rint(x));
  return x;
}

template <UnaryOp op, class T>
TS_PORTABLE inline T unary_element(T x, T alpha, T beta) {
  if constexpr (op == UnaryOp::Gelu) return x * normal_cdf(x);
  if constexpr (op == UnaryOp::GeluTanh) return x * gelu_tanh_gate(x);
  if constexpr (op == UnaryOp::Silu) return x / (T(1) + vexp_flushed(-x));
  if constexpr (op == UnaryOp::Sigmoid) return vsigmoid(x);
  if constexpr (op == UnaryOp::Tanh) return vtanh(x);
  if constexpr (op == UnaryOp::Exp) return vexp(x);
  if constexpr (op == UnaryOp::Expm1) return vexpm1(x);
  if constexpr (op == UnaryOp::Log) return vlog(x);
  if constexpr (op == UnaryOp::Log1p) return vlog1p(x);
  if constexpr (op == UnaryOp::Sin) return any_circular<false>(x);
  if constexpr (op == UnaryOp::Cos) return any_circular<true>(x);
  if constexpr (op == UnaryOp::Erf) return verf(x);
  if constexpr (op == UnaryOp::Softplus) return softplus(x);
  if constexpr (op == UnaryOp::Elu) {
    const T e = alpha * vexpm1(x);
    return x > T(0) ? x : e;
  }
  if constexpr (op == UnaryOp::PowScalar) return raised(x, alpha);
  return unary_simple<op>(x, alpha, beta);
}

template <BinaryOp op, class T>
TS_PORTABLE inline T binary_simple(T a, T b, T alpha) {
  if constexpr (op == BinaryOp::Add) return a + alpha * b;
  if constexpr (op == BinaryOp::Sub) return a - alpha * b;
  if constexpr (op == BinaryOp::Mul) return a * b;
  if constexpr (op == BinaryOp::Div) return a / b;
  if constexpr (op == BinaryOp::Maximum) {
    const T m = a > b ? a : b;  // NaN in either: m is b; the line below brings a NaN of a back
    return a != a ? a : m;
  }
  if constexpr (op == BinaryOp::Minimum) {
    const T m = a < b ? a : b;
    return a != a ? a : m;
  }
  if constexpr (op == BinaryOp::Pow) return vpow(a, b);
  if constexpr (op == BinaryOp::Atan2)
    return sizeof(T) == 4 ? T(::atan2f(float(a), float(b))) : T(::atan2(a, b));
  return a;
}

template <BinaryOp op, class T>
TS_PORTABLE inline T backward_simple(T dy, T x, T alpha, T beta) {
  if constexpr (op == BinaryOp::ReluBackward) return x <= T(0) ? T(0) : dy;
  if constexpr (op == BinaryOp::AbsBackward) return dy * (x > T(0) ? T(1) : x < T(0) ? T(-1) : T(0));
  if constexpr (op == BinaryOp::SigmoidBackward) return dy * (x * (T(1) - x));
  if constexpr (op == BinaryOp::TanhBackward) return dy * (T(1) - x * x);
  if constexpr (op == BinaryOp::SqrtBackward) return dy / (T(2) * x);
  if constexpr (op == BinaryOp::RsqrtBackward) return T(-0.5) * dy * (x * x * x);
  if constexpr (op == BinaryOp::ReciprocalBackward) return -dy * (x * x);
  if constexpr (op == BinaryOp::LeakyReluBackward) return x > T(0) ? dy : alpha * dy;
  if constexpr (op == BinaryOp::ClampBackward) {
    const T inf = std::numeric_limits<T>::infinity();  // an infinite bound is no bound
    return ((x > alpha) | (alpha == -inf)) & ((x < beta) | (beta == inf)) ? dy : T(0);
  }
  if constexpr (op == BinaryOp::PowScalarBackward) {
    const T r = dy * (alpha * raised(x, alpha - T(1)));
    return alpha == T(0) ? T(0) : r;
  }
  return dy;
}

template <BinaryOp op, class T>
TS_PORTABLE inline T binary_element(T a, T b, T alpha, T beta) {
  if constexpr (op <= BinaryOp::Atan2) return binary_simple<op>(a, b, alpha);
  if constexpr (op == BinaryOp::GeluBackward) {
    const Normal<T> n = normal(b);
    return a * (n.cdf + b * n.density);
  }
  if constexpr (op == BinaryOp::GeluTanhBackward) return a * gelu_tanh_slope(b);
  if constexpr (op == BinaryOp::SiluBackward) {
    const T s = vsigmoid(b);
    return a * (s * (T(1) + b * (T(1) - s)));
  }
  if constexpr (op == BinaryOp::ErfBackward) return a * (T(1.12837916709551257390) * vexp_flushed(-b * b));
  if constexpr (op == BinaryOp::SoftplusBackward) {
    const T r = a * vsigmoid(b);
    return b > T(20) ? a : r;
  }
  if constexpr (op == BinaryOp::EluBackward) {
    const T r = a * alpha * vexp_flushed(b);
    return b <= T(0) ? r : a;
  }
  if constexpr (op == BinaryOp::GeluSecond) return a * (normal(b).density * (T(2) - b * b));
  if constexpr (op == BinaryOp::GeluTanhSecond) return a * gelu_tanh_curvature(b);
  if constexpr (op == BinaryOp::SiluSecond) {
    const T s = vsigmoid(b);
    return a * (s * (T(1) - s) * (T(2) + b * (T(1) - T(2) * s)));
  }
  if constexpr (op == BinaryOp::PowBaseSlope) {
    const T r = b * vpow(a, b - T(1));
    return b == T(0) ? T(0) : r;
  }
  if constexpr (op == BinaryOp::PowExponentSlope) {
    const T r = vpow(a, b) * vlog(a);
    return (a == T(0)) & (b >= T(0)) ? T(0) : r;
  }
  return backward_simple<op>(a, b, alpha, beta);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
