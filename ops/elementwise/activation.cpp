#include "ops/elementwise/activation.h"

#include "ops/cpu/activation_ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"

namespace tessera {

using cpu::Activation;

Tensor activated(const Tensor& x, Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return relu(x);
    case Activation::Silu:
      return silu(x);
    case Activation::Gelu:
      return gelu(x);
    case Activation::GeluTanh:
      return gelu(x, GeluKind::Tanh);
    default:
      return x;
  }
}

Tensor activation_gradient(const Tensor& dy, const Tensor& z, Activation activation) {
  static const OpDef op{"activation_backward"};
  if (activation == Activation::None) return dy;
  if (!grad_enabled()) return call_binary({&op, cpu::backward_op(activation), 1, 0, Linearity::First}, dy, z);
  switch (activation) {
    case Activation::Relu:
      return relu_gradient(dy, z);
    case Activation::Silu:
      return silu_gradient(dy, z);
    default:
      return gelu_gradient(dy, z, activation == Activation::GeluTanh ? GeluKind::Tanh : GeluKind::None);
  }
}

}  // namespace tessera
