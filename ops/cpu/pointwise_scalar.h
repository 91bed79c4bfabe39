// Element-wise work that is bound by memory or rare: integers, bool, comparisons. Plain loops.
#pragma once
#include "ops/cpu/loops.h"
#include "ops/cpu/pointwise.h"

namespace tessera::cpu {

void unary_scalar(const UnaryArgs& args, const StridedLoop& loop, int threads);
void binary_scalar(const BinaryArgs& args, const StridedLoop& loop, int threads);

}  // namespace tessera::cpu
