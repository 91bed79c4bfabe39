// The gradient of a reduction as one call, for passes that are not recorded. Internal to ops/.
#pragma once
#include "ops/cpu/ternary_ops.h"
#include "ops/reduce/reduction.h"

namespace tessera {

// What a local function sees: x and, with the reduced dims as 1, dy and what else there is of the result.
struct ReducedArrays {
  const Array& x;
  const Array& dy;
  std::span<const Array> others;
  const ShardSpec* spec;  // of x; null: plain
};
using ReductionBackward = FunctionRef<Array(const ReducedArrays&)>;
// `of_result`: dy, then others that lie as it does, or numbers. Sums that are owed are made first, since a
// slope may be infinite.
Tensor reduction_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> of_result,
                          ReductionBackward local);

// A new array: op of a, x and, where it is defined, c, both broadcast to x.
Array ternary_like(const Array& x, const Array& a, cpu::TernaryOp op, const Array& c, double alpha = 1.0);
// The same in the place of `x`.
void ternary_in_place(const Array& x, const Array& a, cpu::TernaryOp op, const Array& c, double alpha = 1.0);

// dx of an extremum y over dims: dy shared out among the elements that are equal to it, and, where a NaN is
// an extreme, among these.
Tensor extremum_backward(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                         bool nan_is_extreme);
// dx of the norm y of order p > 1.
Tensor power_norm_backward(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                           double p);
// `scale` times dy times the differences of x from `mean` (F64). Of a root `y` dy is divided by it.
Tensor deviation_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> dy_mean_y,
                          double scale);
// dx of logsumexp y, from which rounding took `lost`.
Tensor logsumexp_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> dy_y_lost);

}  // namespace tessera
