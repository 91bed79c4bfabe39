// The backward pass of layer norm over rows that are parts of longer ones, on several ranks: sums over this
// rank's part, and, once they are complete, the gradients.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// In what follows x, dy, dx are [rows, cols], contiguous, of one floating type; weight, dweight, dbias [cols]
// of that type; rstd [rows] and sums [2, rows] f32 (f64 for f64), mean [rows] f64 (a mean far from zero has
// more digits than f32 holds); all contiguous. weight may be undefined: ones.

// sums: of dy weight, and of that times (x - mean) rstd, over each row.
struct NormSumsArgs {
  Array sums;
  Array dy;
  Array x;
  Array mean;
  Array rstd;
  Array weight;
};
void layer_norm_sums(const NormSumsArgs& args);

// With g = dy weight and n = (x - mean) rstd: dx = rstd (g - sums[0] / count - n sums[1] / count), dweight =
// sum over rows of dy n, dbias = sum over rows of dy; any of them may be undefined, without dx the sums too.
// `count`: elements of a whole row. The sums over rows do not depend on the number of threads.
struct NormGradientArgs {
  Array dx;
  Array dweight;
  Array dbias;
  Array dy;
  Array x;
  Array mean;
  Array rstd;
  Array weight;
  Array sums;
  double count = 1;
};
void layer_norm_gradient(const NormGradientArgs& args);

}  // namespace tessera::cpu
