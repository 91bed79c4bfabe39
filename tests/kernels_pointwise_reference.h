// Scalar formulas of the element-wise operations in double, straight from their definitions; gradients by
// difference quotients.
#pragma once
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "ops/cpu/pointwise.h"

namespace tessera::kernel_tests {

using cpu::BinaryOp;
using cpu::UnaryOp;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
inline constexpr double kAlpha = 0.75;
inline constexpr double kBeta = 1.25;

inline double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }
inline double normal_pdf(double x) { return std::exp(-0.5 * x * x) / std::sqrt(2.0 * M_PI); }
inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double sign(double x) { return x > 0 ? 1.0 : x < 0 ? -1.0 : 0.0; }
inline double gelu_tanh(double x) {
  return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}
inline double softplus(double x) { return x > 20.0 ? x : std::log1p(std::exp(x)); }

// Derivatives by a five-point rule: an independent check of the closed forms.
inline double derivative(const std::function<double(double)>& f, double x, double h = 1e-3) {
  return (f(x - 2 * h) - 8 * f(x - h) + 8 * f(x + h) - f(x + 2 * h)) / (12 * h);
}
inline double second_derivative(const std::function<double(double)>& f, double x, double h = 2e-3) {
  return (-f(x - 2 * h) + 16 * f(x - h) - 30 * f(x) + 16 * f(x + h) - f(x + 2 * h)) / (12 * h * h);
}

inline double simple_reference(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::Neg:
      return -x;
    case UnaryOp::Abs:
      return std::abs(x);
    case UnaryOp::Square:
      return x * x;
    case UnaryOp::Sign:
      return sign(x);
    case UnaryOp::Relu:
      return x < 0 ? 0.0 : x;
    case UnaryOp::Affine:
      return kAlpha * x + kBeta;
    case UnaryOp::Clamp:
      return x < kAlpha ? kAlpha : x > kBeta ? kBeta : x;
    case UnaryOp::Step:
      return x > 0 ? 1.0 : 0.0;
    case UnaryOp::Gelu:
      return x * normal_cdf(x);
    case UnaryOp::GeluTanh:
      return gelu_tanh(x);
    case UnaryOp::Silu:
      return x / (1.0 + std::exp(-x));
    default:
      return kNan;
  }
}

inline double unary_reference(UnaryOp op, double x) {
  switch (op) {
    case UnaryOp::Sigmoid:
      return sigmoid(x);
    case UnaryOp::Tanh:
      return std::tanh(x);
    case UnaryOp::Exp:
      return std::exp(x);
    case UnaryOp::Expm1:
      return std::expm1(x);
    case UnaryOp::Log:
      return std::log(x);
    case UnaryOp::Log1p:
      return std::log1p(x);
    case UnaryOp::Sqrt:
      return std::sqrt(x);
    case UnaryOp::Rsqrt:
      return 1.0 / std::sqrt(x);
    case UnaryOp::Reciprocal:
      return 1.0 / x;
    case UnaryOp::Sin:
      return std::sin(x);
    case UnaryOp::Cos:
      return std::cos(x);
    case UnaryOp::Erf:
      return std::erf(x);
    case UnaryOp::Softplus:
      return softplus(x);
    case UnaryOp::LeakyRelu:
      return x > 0 ? x : kAlpha * x;
    case UnaryOp::Elu:
      return x > 0 ? x : kAlpha * std::expm1(x);
    case UnaryOp::PowScalar:
      return std::pow(x, kAlpha);
    case UnaryOp::Floor:
      return std::floor(x);
    case UnaryOp::Ceil:
      return std::ceil(x);
    case UnaryOp::Round:
      return std::nearbyint(x);
    case UnaryOp::LogicalNot:
      return x == 0 ? 1.0 : 0.0;
    case UnaryOp::IsFinite:
      return std::isfinite(x) ? 1.0 : 0.0;
    case UnaryOp::IsNan:
      return std::isnan(x) ? 1.0 : 0.0;
    default:
      return simple_reference(op, x);
  }
}

inline double arithmetic_reference(BinaryOp op, double a, double b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case BinaryOp::Add:
      return a + kAlpha * b;
    case BinaryOp::Sub:
      return a - kAlpha * b;
    case BinaryOp::Mul:
      return a * b;
    case BinaryOp::Div:
      return a / b;
    case BinaryOp::Maximum:
      return nan ? kNan : std::max(a, b);
    case BinaryOp::Minimum:
      return nan ? kNan : std::min(a, b);
    case BinaryOp::Pow:
      return std::pow(a, b);
    case BinaryOp::Atan2:
      return std::atan2(a, b);
    case BinaryOp::Eq:
      return a == b;
    case BinaryOp::Ne:
      return a != b;
    case BinaryOp::Lt:
      return a < b;
    case BinaryOp::Le:
      return a <= b;
    case BinaryOp::Gt:
      return a > b;
    default:
      return a >= b;
  }
}

inline double gradient_reference(BinaryOp op, double dy, double x) {
  const auto of = [x](UnaryOp f) { return derivative([f](double v) { return unary_reference(f, v); }, x); };
  switch (op) {
    case BinaryOp::ReluBackward:
      return x > 0 ? dy : 0.0;
    case BinaryOp::AbsBackward:
      return dy * sign(x);
    case BinaryOp::GeluBackward:
      return dy * of(UnaryOp::Gelu);
    case BinaryOp::GeluTanhBackward:
      return dy * of(UnaryOp::GeluTanh);
    case BinaryOp::SiluBackward:
      return dy * of(UnaryOp::Silu);
    case BinaryOp::SigmoidBackward:
      return dy * x * (1 - x);
    case BinaryOp::TanhBackward:
      return dy * (1 - x * x);
    case BinaryOp::SqrtBackward:
      return dy / (2 * x);
    case BinaryOp::RsqrtBackward:
      return -0.5 * dy * x * x * x;
    case BinaryOp::ReciprocalBackward:
      return -dy * x * x;
    case BinaryOp::ErfBackward:
      return dy * of(UnaryOp::Erf);
    case BinaryOp::SoftplusBackward:
      return dy * of(UnaryOp::Softplus);
    case BinaryOp::LeakyReluBackward:
      return x > 0 ? dy : kAlpha * dy;
    case BinaryOp::EluBackward:
      return x > 0 ? dy : dy * kAlpha * std::exp(x);
    case BinaryOp::ClampBackward:
      return x > kAlpha && x < kBeta ? dy : 0.0;
    case BinaryOp::PowScalarBackward:
      return dy * kAlpha * std::pow(x, kAlpha - 1);
    case BinaryOp::GeluSecond:
      return dy * second_derivative([](double v) { return v * normal_cdf(v); }, x);
    case BinaryOp::GeluTanhSecond:
      return dy * second_derivative(gelu_tanh, x);
    case BinaryOp::SiluSecond:
      return dy * second_derivative([](double v) { return v * sigmoid(v); }, x);
    default:
      return kNan;
  }
}

inline bool is_gradient(BinaryOp op) { return op >= BinaryOp::ReluBackward && op <= BinaryOp::SiluSecond; }

}  // namespace tessera::kernel_tests
