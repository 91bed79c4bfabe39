// How reductions are put together; internal to ops/.
#pragma once
#include "ops/op.h"

namespace tessera {

// Hash of what the plan of a reduction depends on.
inline std::size_t reduction_hash(const Dims& dims, bool keepdim) {
  return Hash().add(dims).add(static_cast<std::int64_t>(keepdim));
}
// A result (or its gradient) with the reduced dims of `sizes` put back as size 1.
Tensor with_kept_dims(const Tensor& t, const Dims& sizes, const Dims& dims);
// Refuses an undefined tensor, and one that is not floating.
void check_floating(const char* op, const Tensor& x);
// The number of elements that fall into one result.
double reduced_count(const Dims& sizes, const Dims& dims);

// The largest (or smallest) of |x|. Unlike amax and amin, a NaN takes the gradient of its row, where its
// slope is 0.
Tensor extremum_norm(const Tensor& x, bool largest, const Dims& dims, bool keepdim);

// A reduction that is no plain sum or extremum, so that no Partial can say it: the local function exchanges
// what it needs over the axes that cut `dims` and gives the complete result, which is Replicate on them.
struct CompleteReduction {
  const OpDef* op = nullptr;
  Dims dims;
  bool keepdim = false;
  std::size_t parameters = 0;
};
using CompleteLocal = FunctionRef<Array(const Array& x, const ShardSpec* spec)>;  // keepdim shape
using CompleteGradient = FunctionRef<GradFunction(const Tensor& x, const Tensor& y)>;
Tensor complete_reduction(const CompleteReduction& r, const Tensor& x, CompleteLocal local,
                          CompleteGradient gradient = {});

}  // namespace tessera
