// Sums of exponentials without overflow: what softmax and logsumexp are made of. Internal to ops/.
#pragma once
#include "ops/op.h"

namespace tessera {

// Σ exp(x) over rows of the global tensor is total · exp(top). Keepdim shapes.
struct ExpSums {
  Array top;  // the row's largest value, or 0 where an infinite one must not be subtracted
  Array total;
};
// `x` (f32 or f64) is local under `spec` (null: plain). Where `dims` are cut, the parts' largest values and
// sums travel in one message. A row without any finite value has top 0; a row whose largest value is +inf too
// if `sums_infinity` (its total is inf), else its total is NaN.
ExpSums exp_sums(const Array& x, const ShardSpec* spec, const Dims& dims, bool sums_infinity);

}  // namespace tessera
