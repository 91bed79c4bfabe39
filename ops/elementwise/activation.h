// Activations by name; internal to ops/.
#pragma once
#include "autograd/tensor.h"
#include "ops/cpu/norm_activation.h"

namespace tessera {

// As an operation of its own; x itself for None.
Tensor activated(const Tensor& x, cpu::Activation activation);
// dy times the slope at z: one pass over memory, or written with ops where the backward pass is recorded.
Tensor activation_gradient(const Tensor& dy, const Tensor& z, cpu::Activation activation);

}  // namespace tessera
