// Sums of powers of absolute values: what norms are made of.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// out = sum of |x|^power over the dims where out has size 1 and x does not, in double whatever x's type, so
// that float values neither overflow nor vanish.
struct PowerSumsArgs {
  Array out;  // f64, keepdim shape
  Array x;    // floating
  double power = 2.0;
};
void power_sums(const PowerSumsArgs& args);

}  // namespace tessera::cpu
