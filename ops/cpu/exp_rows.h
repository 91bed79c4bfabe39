// Sums of exponentials of rows, without overflow: in one pass for the largest number and one for the sum.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// x [rows, n]; max, shift, sum [rows]; all contiguous, of one type, f32 or f64. max: the largest number, -inf
// of none. shift: what is subtracted before exp, max unless that is -inf, or with `sums_infinity` +inf: then
// 0. sum: Σ exp(x - shift), added up in double by pieces; NaN where there is a NaN.
struct ExpRowsArgs {
  Array max;
  Array shift;
  Array sum;
  Array x;
  bool sums_infinity = false;
};
void exp_rows(const ExpRowsArgs& args);

}  // namespace tessera::cpu
