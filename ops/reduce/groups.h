// Statistics that travel instead of data: which ranks share the rows of a reduction, and their merge.
// Internal to ops/.
#pragma once
#include "ops/op.h"

namespace tessera {

// Mesh axes that cut any of `dims` under the spec.
unsigned cutting_axes(const ShardSpec& spec, const Dims& dims);
// Mesh ranks of this rank's group over `mask`, in group order.
std::vector<int> group_ranks(const ShardSpec& spec, unsigned mask);
// Every rank's `mine` (equal sizes), stacked along a new dim 0 in group order. One message for all.
Array gather_over(const ShardSpec& spec, unsigned mask, const Array& mine);

// The spec of a tensor whose `dims` were reduced with complete results: axes that cut them become Replicate.
SpecPtr reduced_spec(const ShardSpec& x, const Dims& dims, bool keepdim);
// Sizes after reducing.
Dims reduced_sizes(const Dims& sizes, const Dims& dims, bool keepdim);
// Wrapped, sorted, without repeats; empty means all. Refuses repeats and what is out of range.
Dims reduction_dims(const char* op, const Dims& dims, int ndim);

// Per-group mean and sum of squared deviations over `dims` of the *global* tensor; keepdim shapes. `x` is
// local under `spec` (null: plain). Elements per group in `count`.
struct Moments {
  Array mean;
  Array rest;  // mean + rest is the mean to more digits than its type has; undefined: 0
  Array m2;
};
Moments global_moments(const Array& x, const ShardSpec* spec, const Dims& dims);

}  // namespace tessera
