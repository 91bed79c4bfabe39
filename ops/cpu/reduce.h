// Reductions over any set of dims.
//
// Which dims are reduced is read off the shapes: those where out has size 1 and x does not. Sums of f32,
// bf16 and f16 are kept in double, so their error does not grow with the length. The work is cut into pieces
// of a fixed size, never by the number of threads, and the pieces are combined in order: the same input
// gives the same bits on one thread and on many.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

enum class ReduceKind : std::uint8_t { Sum, Max, Min, Product };

// Empty reductions give 0, -inf, +inf, 1 (integers: 0, lowest, highest, 1). Max and Min pass NaN on.
struct ReduceArgs {
  Array out;  // x's dtype (sum of bool or i32: i64), keepdim shape
  Array x;
  ReduceKind kind = ReduceKind::Sum;
};
void reduce(const ReduceArgs& args);

// Mean and sum of squared deviations from it, per group; two passes over the data, the second around the
// mean, so a mean much larger than the deviation costs no digits. An empty group has mean 0, m2 0.
struct MomentsArgs {
  Array mean;  // f32 (not of f64) or f64; keepdim shape
  Array m2;    // the same
  Array x;
};
void moments(const MomentsArgs& args);

}  // namespace tessera::cpu
