// Reductions of integers and bool, and the two loops that every reduction is made of.
#pragma once
#include "ops/cpu/loops.h"
#include "ops/cpu/reduce.h"

namespace tessera::cpu {

// kept: over outputs, operands x and out; reduced: over what falls into one output, operand x.
struct ReduceLoops {
  StridedLoop kept;
  StridedLoop reduced;
};
ReduceLoops reduce_loops(const char* op, const Array& out, const Array& x);

void reduce_integer(const ReduceArgs& args, const ReduceLoops& loops);

}  // namespace tessera::cpu
