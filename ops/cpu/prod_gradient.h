// The gradient of products along rows, exact beside zeros, infinities and NaN.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// Which dims were multiplied over is read off the shapes: those where y has size 1 and x does not. With no
// zero in the whole tensor dx = dy · (y / x), else dy times the product of the row's other factors. Of a
// `whole` tensor with several zeros dx is 0, whatever the other factors are.
struct ProdGradientArgs {
  Array dx;     // overwritten
  Array x;      // as dx, any strides; f32, f64, bf16 or f16, as all but zeros
  Array y;      // keepdim shape
  Array dy;     // as y
  Array zeros;  // i64, one element: how many the whole tensor has (more than is held here, if it is cut)
  bool whole = false;
  // f64, sizes and strides as y: the product of what other ranks hold of each row; undefined: they hold
  // nothing. It counts beside zeros alone, as y is the product of all.
  Array rest = {};
};
void prod_gradient(const ProdGradientArgs& args);
// Refuses shapes and types that do not belong together.
void check_prod_gradient(const ProdGradientArgs& args);

}  // namespace tessera::cpu
