// A rank's own term of a parameter's gradient. Part of DataParallel.
#pragma once
#include "autograd/tensor.h"

namespace tessera::train {

struct GradientTerm {
  const DeviceMesh& mesh;
  int ddp_axis = -1;  // -1: none
};

// Writes this rank's term of `grad` into `out`, so that the sum of all ranks' `out` over the whole mesh is
// the mean over ddp of the (global) gradients. `grad` may be undefined (a term of zeros), plain, or sharded
// over axes of the mesh. `out` may be the memory of `grad`.
void write_gradient_term(const GradientTerm& how, const Tensor& grad, const Array& out, const char* name);

}  // namespace tessera::train
