// Softmax and log-softmax along one dim. Rows whose entries are all -inf give NaN, as in PyTorch.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// out and x: same sizes and floating dtype, any strides.
struct SoftmaxArgs {
  Array out;
  Array x;
  int dim = -1;  // negative counts from the end
  bool log = false;
};
void softmax(const SoftmaxArgs& args);

// softmax: dx = y (dy - sum(y dy)); log-softmax: dx = dy - exp(y) sum(dy).
struct SoftmaxBackwardArgs {
  Array dx;
  Array dy;
  Array y;
  int dim = -1;
  bool log = false;
};
void softmax_backward(const SoftmaxBackwardArgs& args);

}  // namespace tessera::cpu
