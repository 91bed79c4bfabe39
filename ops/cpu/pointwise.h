// Element-wise kernels: one output element from the elements at the same index of one or two inputs.
//
// A loop over any strides is first simplified: dims are ordered by the output's strides and merged where the
// memory allows it, so that most calls become one long contiguous run. What stays strided is gathered into
// a block that fits the first-level cache; the vector code therefore only knows contiguous blocks. bf16
// and f16 take the same way through float blocks. f32 transcendental functions are our own polynomials
// (relative error about 1e-7), f64 ones are the C library's. NaN and infinities behave as in PyTorch.
#pragma once
#include "ops/cpu/pointwise_ops.h"
#include "runtime/array.h"

namespace tessera::cpu {

struct UnaryArgs {
  Array out;
  Array x;
  UnaryOp op = UnaryOp::Neg;
  double alpha = 1.0;
  double beta = 0.0;
};

struct BinaryArgs {
  Array out;
  Array a;
  Array b;
  BinaryOp op = BinaryOp::Add;
  double alpha = 1.0;
  double beta = 0.0;
};

// out = cond ? a : b; cond is bool, the others share any dtype.
struct WhereArgs {
  Array out;
  Array cond;
  Array a;
  Array b;
};

// Integers: Neg Abs Square Sign Relu Affine Clamp, Add Sub Mul Div (Div: towards zero) Maximum Minimum Pow
// and the comparisons; bool: Mul (and), Maximum, Add (or), Minimum, LogicalNot and the comparisons. Out may
// be the same memory as an input with equal strides; otherwise it must not overlap. Refuses other
// combinations.
void unary(const UnaryArgs& args);
void binary(const BinaryArgs& args);
void where(const WhereArgs& args);

bool is_comparison(BinaryOp op);
bool writes_bool(UnaryOp op);
const char* name_of(UnaryOp op);
const char* name_of(BinaryOp op);
// The types of tensors that an op takes, in words.
const char* types_of(UnaryOp op);
const char* types_of(BinaryOp op);

}  // namespace tessera::cpu
