// Layer norm over rows: y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps) (Ba et al. 2016).
//
// The variance is taken around the mean in a second pass over the row (which is then in cache), so rows with
// mean 1e4 and deviation 1 keep their digits.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// x, y: [rows, cols], row-major contiguous; weight, bias: [cols] of x's dtype, or undefined;
// mean, rstd: [rows], contiguous, f32 for f32, bf16 and f16, f64 for f64; undefined ones are not written.
struct LayerNormArgs {
  Array y;
  Array mean;
  Array rstd;
  Array x;
  Array weight;
  Array bias;
  double eps = 1e-5;
  // Both or none, like x: what is normalised is sum = x + residual, rounded as it is written.
  Array residual = {};
  Array sum = {};
};
void layer_norm(const LayerNormArgs& args);
// Refuses a residual without a sum, and what is not like x.
void check_residual(const char* op, const LayerNormArgs& args);

// dx: [rows, cols] or undefined; dweight, dbias: [cols] or undefined, overwritten; the sums over rows are
// cut into pieces that do not depend on the number of threads.
struct LayerNormBackwardArgs {
  Array dx;
  Array dweight;
  Array dbias;
  Array dy;
  Array x;
  Array mean;
  Array rstd;
  Array weight;     // undefined: ones
  Array dsum = {};  // like x, or undefined: added to dx
};
void layer_norm_backward(const LayerNormBackwardArgs& args);

}  // namespace tessera::cpu
