// Root-mean-square norm over rows: y = x rstd weight, rstd = 1 / sqrt(mean(x²) + eps) (Zhang and Sennrich
// 2019).
//
// Rows may be parts of longer ones that lie on several ranks: the sums over a row can be had by themselves
// and, once complete, given back.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// In what follows x, y, dx, dy are [rows, cols], contiguous, of one floating type; weight [cols] of that type
// or undefined; everything per row [rows], f32 (f64 for f64), contiguous.

// squares: the sum of x² over each row.
struct RowSquaresArgs {
  Array squares;
  Array x;
};
void row_squares(const RowSquaresArgs& args);

// rstd is written; `squares` undefined: summed here. `count`: elements of a whole row.
struct RmsNormArgs {
  Array y;
  Array rstd;
  Array x;
  Array weight;
  Array squares;
  double count = 1;
  double eps = 1e-6;
};
void rms_norm(const RmsNormArgs& args);

// dots: the sum of dy weight x over each row.
struct RowDotsArgs {
  Array dots;
  Array dy;
  Array x;
  Array weight;
};
void row_dots(const RowDotsArgs& args);

// dx = rstd dy weight - x rstd³ dots / count, dweight = sum over rows of dy x rstd; either may be undefined.
// `dots` undefined: summed here.
struct RmsNormBackwardArgs {
  Array dx;
  Array dweight;
  Array dy;
  Array x;
  Array rstd;
  Array weight;
  Array dots;
  double count = 1;
};
void rms_norm_backward(const RmsNormBackwardArgs& args);

}  // namespace tessera::cpu
