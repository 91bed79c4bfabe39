// Element-wise kernels of three operands of one floating type (ops/cpu/pointwise.h says how loops are made).
#pragma once
#include "ops/cpu/ternary_ops.h"
#include "runtime/array.h"

namespace tessera::cpu {

// a, b and c have out's sizes (stride 0 where expanded) and type; c may be undefined, which is 1 for Quotient
// and 0 for Deviation and Exp, and must be where the op has no c. Out may be the same memory as an input with
// equal strides.
struct TernaryArgs {
  Array out;
  Array a;
  Array b;
  Array c;
  TernaryOp op = TernaryOp::Quotient;
  double alpha = 1.0;
};
void ternary(const TernaryArgs& args);

const char* name_of(TernaryOp op);
// Refuses operands that do not fit.
void check_ternary(const TernaryArgs& args);

}  // namespace tessera::cpu
