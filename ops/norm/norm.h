// Layer normalisation.
//
// Sharded: dims that are not normalised may be cut (no message). If a normalised dim is cut, mean and squared
// deviations of all rows travel in one message and are merged (Chan et al. 1979), so large means lose no
// digits.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// Over the last normalized_shape.size() dims; weight and bias of that shape, or undefined.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = Tensor(),
                  const Tensor& bias = Tensor(), double eps = 1e-5);

}  // namespace tessera
