// Element-wise functions of one input. Each gradient has two forms: one fused kernel, and, when the backward
// pass is itself recorded, the formula written with ops.
//
// Integers follow PyTorch: some functions leave them integers, some make F32 of them, the rest refuses them.
#include <cmath>
#include <limits>
#include <numbers>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::UnaryOp;
using Formula = Tensor (*)(const Tensor& dy, const Tensor& x, const Tensor& y, double alpha, double beta);

// How dy becomes dx.
struct Derivative {
  Formula formula = nullptr;
  BinaryOp fused = BinaryOp::kCount;  // kCount: the formula always
  bool of_output = false;             // y is kept and read, not x
};

Tensor fused_backward(const OpDef& op, BinaryOp kernel, const Tensor& dy, const Tensor& saved,
                      const UnaryCall& u) {
  return call_binary({&op, kernel, u.alpha, u.beta, Linearity::First}, dy, saved);
}

const OpDef kBackward{"unary_backward"};

// What becomes of integers; truth values become i64 where PyTorch has it so.
enum class Integers : std::uint8_t { Refused, Kept, KeptAndBool, Floats };

Integers integers_of(UnaryOp kernel) {
  switch (kernel) {
    case UnaryOp::Relu:
    case UnaryOp::Abs:
      return Integers::Kept;
    case UnaryOp::Square:
      return Integers::KeptAndBool;
    case UnaryOp::Sigmoid:
    case UnaryOp::Tanh:
    case UnaryOp::Exp:
    case UnaryOp::Log:
    case UnaryOp::Sqrt:
    case UnaryOp::Rsqrt:
    case UnaryOp::Sin:
    case UnaryOp::Cos:
    case UnaryOp::Erf:
    case UnaryOp::Reciprocal:
      return Integers::Floats;
    default:
      return Integers::Refused;
  }
}

// x as the kernel takes it.
Tensor computed_with(const UnaryCall& u, const Tensor& x) {
  const Integers integers = integers_of(u.kernel);
  TS_CHECK(x.defined() && integers != Integers::Refused, u.op->name, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  if (integers == Integers::Floats) return to(x, DType::F32);
  return integers == Integers::KeptAndBool && x.dtype() == DType::Bool ? to(x, DType::I64) : x;
}

Tensor with_derivative(const UnaryCall& u, const Tensor& given, const Derivative& d) {
  const bool floats = given.defined() && is_floating(given.dtype());
  const Tensor integers = floats ? Tensor() : computed_with(u, given);
  const Tensor& x = floats ? given : integers;
  return call_unary(u, x, [&](const Tensor& in, const Tensor& out) -> GradFunction {
    return [u, d, kept = d.of_output ? SavedTensor::output(out) : SavedTensor(in)](const BackwardContext&,
                                                                                   const Tensors& g) {
      const Tensor saved = kept.unpack(u.op->name);
      if (d.fused == BinaryOp::kCount || grad_enabled())
        return Tensors{d.formula(g[0], saved, saved, u.alpha, u.beta)};
      return Tensors{fused_backward(kBackward, d.fused, g[0], saved, u)};
    };
  });
}

const OpDef kStep{"step"};
Tensor step(const Tensor& x) { return call_unary({&kStep, UnaryOp::Step}, x); }
Tensor as(const Tensor& mask, const Tensor& like) { return to(mask, like.dtype()); }

Tensor normal_density(const Tensor& x) {
  return exp(square(x) * -0.5) * (1.0 / std::sqrt(2.0 * std::numbers::pi));
}
Tensor gelu_slope(const Tensor& x) {
  return (erf(x * std::numbers::sqrt2 * 0.5) + 1.0) * 0.5 + x * normal_density(x);
}
constexpr double kTanhCubic = 0.044715;
Tensor gelu_tanh_slope(const Tensor& x) {
  const double c = std::sqrt(2.0 / std::numbers::pi);
  const Tensor t = tanh((x + x * square(x) * kTanhCubic) * c);
  const Tensor inner = (square(x) * (3.0 * kTanhCubic) + 1.0) * c;
  return (t + 1.0) * 0.5 + x * (1.0 - square(t)) * inner * 0.5;
}

}  // namespace

// dy where x is not at most 0: linear in dy, flat in x.
Tensor relu_gradient(const Tensor& dy, const Tensor& x) {
  return call_binary({&kBackward, BinaryOp::ReluBackward, 1, 0, Linearity::First}, dy, x,
                     [](const Tensor&, const Tensor& in) -> GradFunction {
                       return [kept = SavedTensor(in)](const BackwardContext&, const Tensors& g) {
                         return Tensors{relu_gradient(g[0], kept.unpack("relu")), Tensor()};
                       };
                     });
}

Tensor silu_gradient(const Tensor& dy, const Tensor& x) {
  const Tensor s = sigmoid(x);
  return dy * s * (x * (1.0 - s) + 1.0);
}

Tensor gelu_gradient(const Tensor& dy, const Tensor& x, GeluKind approximate) {
  return dy * (approximate == GeluKind::Tanh ? gelu_tanh_slope(x) : gelu_slope(x));
}

#define TS_UNARY(function, KERNEL, FUSED, OF_OUTPUT, ...)                                            \
  Tensor function(const Tensor& x) {                                                                 \
    static const OpDef op{#function};                                                                \
    const Formula formula = []([[maybe_unused]] const Tensor& dy, [[maybe_unused]] const Tensor& x_, \
                               [[maybe_unused]] const Tensor& y, double,                             \
                               double) -> Tensor { return __VA_ARGS__; };                            \
    return with_derivative({&op, UnaryOp::KERNEL}, x, {formula, BinaryOp::FUSED, OF_OUTPUT});        \
  }

TS_UNARY(relu, Relu, ReluBackward, false, relu_gradient(dy, x_))
TS_UNARY(silu, Silu, SiluBackward, false, silu_gradient(dy, x_))
TS_UNARY(sigmoid, Sigmoid, SigmoidBackward, true, dy* y*(1.0 - y))
TS_UNARY(tanh, Tanh, TanhBackward, true, dy*(1.0 - square(y)))
TS_UNARY(exp, Exp, Mul, true, dy* y)
TS_UNARY(log, Log, Div, false, dy / x_)
TS_UNARY(sqrt, Sqrt, SqrtBackward, true, dy * 0.5 / y)
TS_UNARY(rsqrt, Rsqrt, RsqrtBackward, true, dy* y* square(y) * -0.5)
TS_UNARY(abs, Abs, AbsBackward, false, dy* sign(x_))
TS_UNARY(square, Square, kCount, false, dy* x_ * 2.0)
TS_UNARY(sin, Sin, kCount, false, dy* cos(x_))
TS_UNARY(cos, Cos, kCount, false, -(dy* sin(x_)))
TS_UNARY(erf, Erf, ErfBackward, false, dy* exp(-square(x_)) * (2.0 * std::numbers::inv_sqrtpi))
TS_UNARY(reciprocal, Reciprocal, ReciprocalBackward, true, -(dy* square(y)))

#undef TS_UNARY

Tensor softplus(const Tensor& x, double beta, double threshold) {
  static const OpDef op{"softplus"};
  if (x.defined() && (beta != 1.0 || threshold != 20.0)) return scaled_softplus(x, beta, threshold);
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double, double) {
    return where(gt(in, 20.0), dy, dy * sigmoid(in));
  };
  return with_derivative({&op, UnaryOp::Softplus}, x, {formula, BinaryOp::SoftplusBackward, false});
}

Tensor gelu(const Tensor& x, GeluKind approximate) {
  static const OpDef exact{"gelu"};
  static const OpDef approximated{"gelu_tanh"};
  if (approximate == GeluKind::Tanh) {
    const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double, double) {
      return gelu_gradient(dy, in, GeluKind::Tanh);
    };
    return with_derivative({&approximated, UnaryOp::GeluTanh}, x,
                           {formula, BinaryOp::GeluTanhBackward, false});
  }
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double, double) {
    return gelu_gradient(dy, in, GeluKind::None);
  };
  return with_derivative({&exact, UnaryOp::Gelu}, x, {formula, BinaryOp::GeluBackward, false});
}

Tensor neg(const Tensor& x) {
  static const OpDef op{"neg"};
  return call_unary({&op, UnaryOp::Neg, 1, 0, Linearity::Each}, x,
                    [](const Tensor&, const Tensor&) -> GradFunction {
                      return [](const BackwardContext&, const Tensors& g) { return Tensors{neg(g[0])}; };
                    });
}

Tensor affine(const Tensor& x, double scale, double shift) {
  static const OpDef op{"affine"};
  if (x.defined() && !is_floating(x.dtype())) {  // as PyTorch: fractions make floats, numbers make integers
    if (scale != std::floor(scale) || shift != std::floor(shift) || std::isinf(scale) || std::isinf(shift))
      return affine(to(x, DType::F32), scale, shift);
    if (x.dtype() == DType::Bool) return affine(to(x, DType::I64), scale, shift);
  }
  // Terms of a sum that is owed may be scaled one by one, but for infinity: a term may be 0 where the sum is
  // not. The shift counts on one of the ranks that owe it.
  const Linearity linearity = std::isinf(scale) ? Linearity::None : Linearity::Each;
  return call_unary(
      {&op, UnaryOp::Affine, scale, shift, linearity}, x, [&](const Tensor&, const Tensor&) -> GradFunction {
        return
            [scale](const BackwardContext&, const Tensors& g) { return Tensors{affine(g[0], scale, 0.0)}; };
      });
}

Tensor sign(const Tensor& x) {
  static const OpDef op{"sign"};
  if (x.defined() && x.dtype() == DType::Bool) return mul(x, x);  // true and false as they are
  return call_unary({&op, UnaryOp::Sign}, x, [](const Tensor&, const Tensor&) -> GradFunction {
    return [](const BackwardContext&, const Tensors& g) { return Tensors{affine(g[0], 0.0, 0.0)}; };
  });
}

Tensor leaky_relu(const Tensor& x, double negative_slope) {
  static const OpDef op{"leaky_relu"};
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double slope, double) {
    return dy * affine(step(in), 1.0 - slope, slope);
  };
  return with_derivative({&op, UnaryOp::LeakyRelu, negative_slope}, x,
                         {formula, BinaryOp::LeakyReluBackward, false});
}

Tensor elu(const Tensor& x, double alpha) {
  static const OpDef op{"elu"};
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double a, double) {
    return where(le(in, full_scalar(in, 0.0)), dy * exp(in) * a, dy);
  };
  return with_derivative({&op, UnaryOp::Elu, alpha}, x, {formula, BinaryOp::EluBackward, false});
}

namespace {

// As PyTorch's: whole bounds keep integers, others make floats. An infinite bound is none.
Tensor clamp_integers(const OpDef& op, const Tensor& given, double min, double max) {
  const auto whole = [](double bound) { return std::isinf(bound) || bound == std::floor(bound); };
  if (!whole(min) || !whole(max)) return clamp(to(given, DType::F32), min, max);
  const DType dtype = given.dtype() == DType::Bool ? DType::I64 : given.dtype();
  for (const double bound : {min, max})
    TS_CHECK(std::isinf(bound) || fits_integer(dtype, bound), op.name, "the bound {} is no number of {}",
             bound, name_of(dtype));
  const Tensor x = to(given, dtype);
  // One after the other: where min is above max, all become max.
  Tensor y = std::isinf(min) ? x : maximum(x, full_scalar(x, min));
  return std::isinf(max) ? y : minimum(y, full_scalar(x, max));
}

// By repeated squaring, which wraps as PyTorch's does.
Tensor power_of_integers(const OpDef& op, const Tensor& given, double exponent) {
  TS_CHECK(exponent >= 0.0, op.name, "takes exponents from 0 for {} tensors, given {}",
           name_of(given.dtype()), exponent);
  Tensor square_of = given.dtype() == DType::Bool ? to(given, DType::I64) : given;
  Tensor y = affine(square_of, 0.0, 1.0);
  for (double left = exponent; left >= 1.0; left = std::floor(left * 0.5)) {
    if (std::fmod(left, 2.0) == 1.0) y = mul(y, square_of);
    square_of = square(square_of);
  }
  return y;
}

}  // namespace

Tensor clamp(const Tensor& x, double min, double max) {
  static const OpDef op{"clamp"};
  if (std::isnan(min) || std::isnan(max)) return affine(x, 0.0, std::numeric_limits<double>::quiet_NaN());
  if (x.defined() && !is_floating(x.dtype())) return clamp_integers(op, x, min, max);
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double lo, double hi) {
    Tensor dx = dy;  // an infinite bound is no bound
    if (std::isfinite(lo)) dx = dx * as(gt(in, full_scalar(in, lo)), dy);
    if (std::isfinite(hi)) dx = dx * as(lt(in, full_scalar(in, hi)), dy);
    return dx;
  };
  return with_derivative({&op, UnaryOp::Clamp, min, max}, x, {formula, BinaryOp::ClampBackward, false});
}

Tensor pow(const Tensor& x, double exponent) {
  static const OpDef op{"pow"};
  if (x.defined() && !is_floating(x.dtype())) {
    if (exponent == std::floor(exponent) && std::isfinite(exponent))
      return power_of_integers(op, x, exponent);
    return pow(to(x, DType::F32), exponent);
  }
  const Formula formula = [](const Tensor& dy, const Tensor& in, const Tensor&, double e, double) {
    return e == 0.0 ? affine(dy, 0.0, 0.0) : dy * pow(in, e - 1.0) * e;
  };
  return with_derivative({&op, UnaryOp::PowScalar, exponent}, x,
                         {formula, BinaryOp::PowScalarBackward, false});
}

}  // namespace tessera
