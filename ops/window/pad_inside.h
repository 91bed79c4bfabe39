// Padding with values of the map itself. Internal to ops/; the public function is pad
// (ops/shape/shape_ops.h).
#pragma once
#include "ops/shape/shape_ops.h"

namespace tessera {

// Modes Reflect and Replicate, over the last `spatial` dims; `before` and `after` have one entry per dim of
// x.
Tensor pad_from_inside(const Tensor& x, int spatial, const Dims& before, const Dims& after, PadMode mode);

}  // namespace tessera
