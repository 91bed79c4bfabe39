// Element-wise operations. Names, broadcasting and type promotion are PyTorch's.
//
// Sharded: local wherever the operands are cut alike; other cuts are re-aligned by one exchange of the
// cheaper operand. add and sub keep sums that are owed (Partial) owed, also beside a number, mul and div by a
// replicated factor too; everything else reduces first.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

enum class GeluKind : std::uint8_t { None, Tanh };  // erf form, tanh approximation
enum class RoundingMode : std::uint8_t { None, Trunc, Floor };

// Of integers and bools: abs, square, sign, relu, neg, clamp and pow by whole numbers stay integers (square,
// clamp and pow of bools are i64; abs, relu and neg refuse them); sigmoid, tanh, exp, log, sqrt, rsqrt, sin,
// cos, erf, reciprocal and fractions make F32; the other functions of one tensor need floats.

Tensor relu(const Tensor& x);
Tensor gelu(const Tensor& x, GeluKind approximate = GeluKind::None);
Tensor silu(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor rsqrt(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor neg(const Tensor& x);
Tensor square(const Tensor& x);
Tensor sin(const Tensor& x);
Tensor cos(const Tensor& x);
Tensor erf(const Tensor& x);
// log(1 + exp(beta x)) / beta; x itself where beta x is above the threshold.
Tensor softplus(const Tensor& x, double beta = 1.0, double threshold = 20.0);
Tensor reciprocal(const Tensor& x);
Tensor leaky_relu(const Tensor& x, double negative_slope = 0.01);
Tensor elu(const Tensor& x, double alpha = 1.0);
Tensor clamp(const Tensor& x, double min, double max);  // ±infinity: open
// Either may be undefined: open there. Where min is above max, max. Gradients of the three are PyTorch's: on
// ties half to x and half to the bound.
Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max = {});
Tensor pow(const Tensor& x, double exponent);
// Of integers by negative ones: 0, but of 1 and -1. Gradients where the exponent (for its own: the base) is 0
// are PyTorch's.
Tensor pow(const Tensor& x, const Tensor& exponent);
Tensor pow(double x, const Tensor& exponent);
Tensor sign(const Tensor& x);
// scale·x + shift
Tensor affine(const Tensor& x, double scale, double shift);

Tensor add(const Tensor& a, const Tensor& b, double alpha = 1.0);  // a + alpha·b
Tensor sub(const Tensor& a, const Tensor& b, double alpha = 1.0);  // a - alpha·b
Tensor mul(const Tensor& a, const Tensor& b);
Tensor div(const Tensor& a, const Tensor& b);
// Rounded towards 0 or down, gradients are zeros; of integers too, which by 0 give -1 (PyTorch: an error on
// the CPU, any number on a device).
Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode);
Tensor div(const Tensor& a, double b, RoundingMode rounding_mode);
Tensor maximum(const Tensor& a, const Tensor& b);  // on ties both get half of the gradient
Tensor minimum(const Tensor& a, const Tensor& b);
// Comparisons give Bool tensors, without gradient. A number takes the tensor's dtype; beside integers a
// fraction makes F32 of both.
Tensor eq(const Tensor& a, const Tensor& b);
Tensor ne(const Tensor& a, const Tensor& b);
Tensor lt(const Tensor& a, const Tensor& b);
Tensor le(const Tensor& a, const Tensor& b);
Tensor gt(const Tensor& a, const Tensor& b);
Tensor ge(const Tensor& a, const Tensor& b);
Tensor eq(const Tensor& a, double b);
Tensor ne(const Tensor& a, double b);
Tensor lt(const Tensor& a, double b);
Tensor le(const Tensor& a, double b);
Tensor gt(const Tensor& a, double b);
Tensor ge(const Tensor& a, double b);
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b);
Tensor where(const Tensor& condition, const Tensor& a, double b);
Tensor where(const Tensor& condition, double a, const Tensor& b);
Tensor to(const Tensor& x, DType dtype);
// The same tensor on another device, cut as before; the gradient moves back. No messages. Refuses a device
// that this build or machine does not have.
Tensor to(const Tensor& x, Device device);
Tensor contiguous(const Tensor& x);

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& a) { return neg(a); }
inline Tensor operator+(const Tensor& a, double s) { return affine(a, 1.0, s); }
inline Tensor operator+(double s, const Tensor& a) { return affine(a, 1.0, s); }
inline Tensor operator-(const Tensor& a, double s) { return affine(a, 1.0, -s); }
inline Tensor operator-(double s, const Tensor& a) { return affine(a, -1.0, s); }
inline Tensor operator*(const Tensor& a, double s) { return affine(a, s, 0.0); }
inline Tensor operator*(double s, const Tensor& a) { return affine(a, s, 0.0); }
inline Tensor operator/(const Tensor& a, double s) { return affine(a, 1.0 / s, 0.0); }

}  // namespace tessera
