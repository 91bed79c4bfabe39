// Arithmetic on local arrays, for what an op works out beside its kernel (statistics of a few numbers a row).
// Internal to ops/.
#pragma once
#include "ops/cpu/pointwise_ops.h"
#include "ops/cpu/reduce.h"
#include "runtime/array.h"

namespace tessera {

Array array_unary(cpu::UnaryOp op, const Array& x, double alpha = 1.0);
// In place: for arrays of one's own.
void array_unary_(cpu::UnaryOp op, const Array& x, double alpha = 1.0);
// `b` is broadcast to a's sizes.
Array array_binary(cpu::BinaryOp op, const Array& a, const Array& b);
// Over `dims`, which stay with size 1.
Array array_reduce(cpu::ReduceKind kind, const Array& x, const Dims& dims);
// `value` where x is `of`.
Array array_replace(const Array& x, double of, double value);

}  // namespace tessera
