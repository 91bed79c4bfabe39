// The gradient of maximum, minimum and of one bound; internal to ops/.
#pragma once
#include "autograd/node.h"
#include "ops/cpu/ternary_ops.h"

namespace tessera {

// Nothing to the one that loses, half to each on ties. Beside a NaN nobody loses, and both get all of it (as
// in PyTorch). Of the broadcast shape.
Tensors extremum_gradient(const BackwardContext& c, const Tensor& dy, const Tensor& a, const Tensor& b,
                          cpu::TernaryOp kernel);

}  // namespace tessera
