// How element-wise operations are put together; internal to ops/.
#pragma once
#include "ops/cpu/pointwise_ops.h"
#include "ops/elementwise/elementwise.h"
#include "ops/memory_order.h"
#include "ops/op.h"

namespace tessera {

// The rule of an element-wise op: equal letters for the dims of the broadcast shape, "." where an input has
// size 1.
Rule broadcast_rule(std::span<const Tensor> inputs, const Dims& out, Linearity linearity);

// Which of two operands says how the result lies: the larger one, or that which is not expanded, or the
// first.
const Array& layout_model(const Array& a, const Array& b);

struct UnaryCall {
  const OpDef* op = nullptr;
  cpu::UnaryOp kernel = cpu::UnaryOp::Neg;
  double alpha = 1.0;
  double beta = 0.0;
  Linearity linearity = Linearity::None;
};
using UnaryGradient = FunctionRef<GradFunction(const Tensor& x, const Tensor& y)>;
Tensor call_unary(const UnaryCall& u, const Tensor& x, UnaryGradient gradient = {});

struct BinaryCall {
  const OpDef* op = nullptr;
  cpu::BinaryOp kernel = cpu::BinaryOp::Add;
  double alpha = 1.0;
  double beta = 0.0;
  Linearity linearity = Linearity::None;
};
using BinaryGradient = FunctionRef<GradFunction(const Tensor& a, const Tensor& b)>;
// Both of one dtype.
Tensor call_binary(const BinaryCall& bc, const Tensor& a, const Tensor& b, BinaryGradient gradient = {});

// The two operands in their common dtype; a 0-dim operand does not promote one with dims of the same kind.
std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b);

// The same for any number of operands.
DType common_dtype(std::span<const Tensor> operands);

// The gradients dx of activations at x, written with ops.
Tensor relu_gradient(const Tensor& dy, const Tensor& x);
Tensor silu_gradient(const Tensor& dy, const Tensor& x);
Tensor gelu_gradient(const Tensor& dy, const Tensor& x, GeluKind approximate);

// x as the option `dtype` of an operation that takes floating tensors has it. Refuses what is not floating.
Tensor cast_to_floating(const char* op, const Tensor& x, DType dtype);

// Whether a whole number is one of this integer type.
bool fits_integer(DType dtype, double number);

// x and a number in their common dtype: a whole number leaves integers as they are, every number floats.
std::pair<Tensor, Tensor> beside_number(const char* op, const Tensor& x, double number);
// log(1 + exp(beta x)) / beta, x itself where beta x is above the threshold.
Tensor scaled_softplus(const Tensor& x, double beta, double threshold);

// A 0-dim tensor of like's dtype and device.
Tensor full_scalar(const Tensor& like, double value);

}  // namespace tessera
