// Powers whose exponent is a tensor.
#include "ops/cpu/pointwise.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

using cpu::BinaryOp;

const OpDef kPower{"pow"};
const OpDef kSlope{"pow_backward"};

Tensor slope(BinaryOp kernel, const Tensor& a, const Tensor& b) {
  return call_binary({&kSlope, kernel}, a, b);
}

// Of the broadcast sizes. In the forms of PyTorch, whose zeros and NaN these are: nothing where the exponent
// is 0 (where the base is, for the exponent's).
Tensor base_gradient(const Tensor& dy, const Tensor& a, const Tensor& b) {
  if (!grad_enabled()) return mul(dy, slope(BinaryOp::PowBaseSlope, a, b));
  return mul(dy, where(eq(b, 0.0), 0.0, b * pow(a, b - 1.0)));
}

Tensor exponent_gradient(const Tensor& dy, const Tensor& a, const Tensor& b) {
  if (!grad_enabled()) return mul(dy, slope(BinaryOp::PowExponentSlope, a, b));
  const Tensor flat = mul(eq(a, 0.0), ge(b, 0.0));
  return mul(dy, where(flat, 0.0, pow(a, b) * log(a)));
}

Tensor power(const Tensor& a, const Tensor& b) {
  return call_binary({&kPower, BinaryOp::Pow}, a, b, [](const Tensor& x, const Tensor& y) -> GradFunction {
    return [sx = SavedTensor(x), sy = SavedTensor(y), size_x = x.sizes(), size_y = y.sizes()](
               const BackwardContext& c, const Tensors& g) {
      const Tensor base = sx.unpack(kPower.name);
      const Tensor exponent = sy.unpack(kPower.name);
      Tensors grads(2);
      if (c.needs(0)) grads[0] = sum_to_size(base_gradient(g[0], base, exponent), size_x);
      if (c.needs(1)) grads[1] = sum_to_size(exponent_gradient(g[0], base, exponent), size_y);
      return grads;
    };
  });
}

}  // namespace

Tensor pow(const Tensor& x, const Tensor& exponent) {
  TS_CHECK(x.defined() && exponent.defined(), kPower.name, "an input is undefined");
  check_together(kPower.name, {&x, &exponent});
  TS_CHECK(x.dtype() != DType::Bool || exponent.dtype() != DType::Bool, kPower.name,
           "takes floating and integer tensors, given two of bool");
  broadcast_sizes(kPower.name, x.sizes(), exponent.sizes());
  const auto [a, b] = promoted(x, exponent);
  return power(a, b);
}

Tensor pow(double x, const Tensor& exponent) {
  const auto [b, a] = beside_number(kPower.name, exponent, x);
  return power(a, b);
}

}  // namespace tessera
