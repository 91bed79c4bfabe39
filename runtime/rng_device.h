// Random values on devices other than the CPU.
#pragma once
#include "runtime/kernel.h"
#include "runtime/rng.h"

namespace tessera {

// One call of a function of rng.h, checked.
struct RandomFill {
  Array out;
  Array in;  // of Dropout; else out
  IndexBox box;
  RngKey key;
  RandomKind kind = RandomKind::Uniform;
  double a = 0;  // lo, mean, mean, p
  double b = 1;  // hi, deviation, deviation, 1 / (1 - p)
  double lo = 0;
  double hi = 0;
};
extern Kernel<void(const RandomFill&)> random_fill_kernel;

}  // namespace tessera
