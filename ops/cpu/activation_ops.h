// The element-wise kernels of activations.
#pragma once
#include "ops/cpu/norm_activation.h"
#include "ops/cpu/pointwise_ops.h"

namespace tessera::cpu {

// What an activation (not None) does to its argument.
constexpr UnaryOp forward_op(Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return UnaryOp::Relu;
    case Activation::Silu:
      return UnaryOp::Silu;
    case Activation::Gelu:
      return UnaryOp::Gelu;
    default:
      return UnaryOp::GeluTanh;
  }
}

// dy times its slope at what it was given.
constexpr BinaryOp backward_op(Activation activation) {
  switch (activation) {
    case Activation::Relu:
      return BinaryOp::ReluBackward;
    case Activation::Silu:
      return BinaryOp::SiluBackward;
    case Activation::Gelu:
      return BinaryOp::GeluBackward;
    default:
      return BinaryOp::GeluTanhBackward;
  }
}

}  // namespace tessera::cpu
