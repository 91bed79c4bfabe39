#pragma once
#include "autograd/tensor.h"

namespace tessera::optim {

// The 2-norm of all gradients together, as one vector of the *global* tensors. Collective where gradients are
// owed or cut (one sum per mesh and set of cut axes); parameters without a gradient count as zero.
double grad_norm(const Tensors& params);

// What clipping to max_norm multiplies gradients with: max_norm / norm where the norm is larger, else 1; 1
// too where the norm is not finite.
struct ClipFactor {
  double norm = 0;
  double factor = 1;
};
ClipFactor clip_factor(const char* op, const Tensors& params, double max_norm);  // op: for errors

// Scales all gradients by max_norm / norm where the norm is larger than max_norm; returns the norm before.
// A norm that is not finite is returned and the gradients stay as they are.
double clip_grad_norm_(const Tensors& params, double max_norm);

}  // namespace tessera::optim
