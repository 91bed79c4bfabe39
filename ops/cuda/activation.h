// The activations that may follow a norm, chosen at run time: the same for all threads of a kernel.
#pragma once
#include "ops/cpu/norm_activation.h"
#include "ops/cuda/device_math.h"
#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

template <class W>
TS_DEVICE W activated(cpu::NormActivation a, W z) {
  switch (a) {
    case cpu::NormActivation::Relu:
      return math::unary_element<cpu::UnaryOp::Relu>(z, W(0), W(0));
    case cpu::NormActivation::Silu:
      return math::unary_element<cpu::UnaryOp::Silu>(z, W(0), W(0));
    case cpu::NormActivation::Gelu:
      return math::unary_element<cpu::UnaryOp::Gelu>(z, W(0), W(0));
    case cpu::NormActivation::GeluTanh:
      return math::unary_element<cpu::UnaryOp::GeluTanh>(z, W(0), W(0));
    default:
      return z;
  }
}
// dy times the slope at z.
template <class W>
TS_DEVICE W activation_gradient(cpu::NormActivation a, W dy, W z) {
  switch (a) {
    case cpu::NormActivation::Relu:
      return math::binary_element<cpu::BinaryOp::ReluBackward>(dy, z, W(0), W(0));
    case cpu::NormActivation::Silu:
      return math::binary_element<cpu::BinaryOp::SiluBackward>(dy, z, W(0), W(0));
    case cpu::NormActivation::Gelu:
      return math::binary_element<cpu::BinaryOp::GeluBackward>(dy, z, W(0), W(0));
    case cpu::NormActivation::GeluTanh:
      return math::binary_element<cpu::BinaryOp::GeluTanhBackward>(dy, z, W(0), W(0));
    default:
      return dy;
  }
}

}  // namespace tessera::cuda
