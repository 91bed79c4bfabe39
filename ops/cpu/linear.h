// A linear layer and its activation: y = f(x w + bias).
#pragma once
#include "ops/cpu/norm_activation.h"
#include "runtime/array.h"

namespace tessera::cpu {

struct LinearArgs {
  Array y;     // [M, N], floating; all of its type
  Array z;     // [M, N], what the activation is given; undefined: not wanted
  Array x;     // [M, K]
  Array w;     // [K, N], any strides
  Array bias;  // [N] or undefined
  Activation activation = Activation::None;
};
// Some rows after another, each through the activation while they are in the cache.
void linear(const LinearArgs& args);

}  // namespace tessera::cpu
