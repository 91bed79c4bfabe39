// Means and their like.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// scale * sum over dims (none given: over all), in x's type. The sum itself is not rounded to f16, whose
// numbers end at 65504. Communicates as sum does.
Tensor scaled_sum(const Tensor& x, double scale, const Dims& dims = {}, bool keepdim = false);

}  // namespace tessera
