#include "ops/cpu/pointwise.h"

namespace tessera::cpu {

const char* name_of(UnaryOp op) {
  static constexpr const char* kNames[] = {
      "neg",   "abs",   "square",      "sign",       "relu",    "affine",     "clamp",
      "step",  "gelu",  "gelu_tanh",   "silu",       "sigmoid", "tanh",       "exp",
      "expm1", "log",   "log1p",       "sqrt",       "rsqrt",   "reciprocal", "sin",
      "cos",   "erf",   "softplus",    "leaky_relu", "elu",     "pow_scalar", "floor",
      "ceil",  "round", "logical_not", "is_finite",  "is_nan"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<std::size_t>(UnaryOp::kCount));
  return kNames[static_cast<std::size_t>(op)];
}

const char* name_of(BinaryOp op) {
  static constexpr const char* kNames[] = {"add",
                                           "sub",
                                           "mul",
                                           "div",
                                           "maximum",
                                           "minimum",
                                           "pow",
                                           "atan2",
                                           "relu_backward",
                                           "abs_backward",
                                           "gelu_backward",
                                           "gelu_tanh_backward",
                                           "silu_backward",
                                           "sigmoid_backward",
                                           "tanh_backward",
                                           "sqrt_backward",
                                           "rsqrt_backward",
                                           "reciprocal_backward",
                                           "erf_backward",
                                           "softplus_backward",
                                           "leaky_relu_backward",
                                           "elu_backward",
                                           "clamp_backward",
                                           "pow_scalar_backward",
                                           "gelu_second",
                                           "gelu_tanh_second",
                                           "silu_second",
                                           "pow_base_slope",
                                           "pow_exponent_slope",
                                           "eq",
                                           "ne",
                                           "lt",
                                           "le",
                                           "gt",
                                           "ge"};
  static_assert(sizeof(kNames) / sizeof(kNames[0]) == static_cast<std::size_t>(BinaryOp::kCount));
  return kNames[static_cast<std::size_t>(op)];
}

const char* types_of(UnaryOp op) {
  const bool integers = op <= UnaryOp::Step || (op >= UnaryOp::Floor && op <= UnaryOp::Round);
  return writes_bool(op) ? "floating, integer and bool" : integers ? "floating and integer" : "floating";
}

const char* types_of(BinaryOp op) {
  const bool as_logic =
      op == BinaryOp::Add || op == BinaryOp::Mul || op == BinaryOp::Maximum || op == BinaryOp::Minimum;
  if (as_logic || is_comparison(op)) return "floating, integer and bool";
  const bool integers = op == BinaryOp::Sub || op == BinaryOp::Div || op == BinaryOp::Pow;
  return integers ? "floating and integer" : "floating";
}

}  // namespace tessera::cpu
