// The element-wise operations by name; also read by the vector kernels, which see nothing else of the
// library.
#pragma once
#include <cstdint>

namespace tessera::cpu {

// x has out's sizes (stride 0 where expanded). alpha and beta are used where the comment names them.
enum class UnaryOp : std::uint8_t {
  Neg,
  Abs,
  Square,
  Sign,    // of NaN: 0
  Relu,    // these and Affine, Clamp also for i32 and i64
  Affine,  // alpha x + beta
  Clamp,   // into [alpha, beta]; NaN stays
  Step,    // 1 where x > 0, else 0
  Gelu,
  GeluTanh,
  Silu,
  Sigmoid,
  Tanh,
  Exp,
  Expm1,
  Log,
  Log1p,
  Sqrt,
  Rsqrt,
  Reciprocal,
  Sin,
  Cos,
  Erf,
  Softplus,   // log(1 + exp(x)), x itself above 20
  LeakyRelu,  // alpha x where x <= 0
  Elu,        // alpha (exp(x) - 1) where x <= 0
  PowScalar,  // x ^ alpha
  Floor,
  Ceil,
  Round,  // Round: halves to even
  LogicalNot,
  IsFinite,
  IsNan,  // out is bool
  kCount
};

// a and b have out's sizes and one dtype. Comparisons write bool; every other op writes the inputs' dtype.
enum class BinaryOp : std::uint8_t {
  Add,
  Sub,  // a + alpha b, a - alpha b
  Mul,
  Div,
  Maximum,
  Minimum,
  Pow,  // maximum and minimum pass NaN on; Pow also for i32 and i64
  Atan2,
  // Gradients: a is the output's gradient dy; b is x, or y where the comment says so. Where x is NaN, relu
  // and elu pass dy on, as in PyTorch.
  ReluBackward,
  AbsBackward,
  GeluBackward,
  GeluTanhBackward,
  SiluBackward,
  SigmoidBackward,
  TanhBackward,  // b = y
  SqrtBackward,
  RsqrtBackward,
  ReciprocalBackward,  // b = y
  ErfBackward,
  SoftplusBackward,
  LeakyReluBackward,  // alpha
  EluBackward,        // alpha
  ClampBackward,      // alpha, beta; passes the gradient on the open interval; an infinite bound is none
  PowScalarBackward,  // alpha: dy alpha x^(alpha-1)
  // dy f''(x), for gradients of gradients.
  GeluSecond,
  GeluTanhSecond,
  SiluSecond,
  // How pow grows with its base a (0 where b is 0) and with its exponent b (0 where a is 0 and b is not
  // negative).
  PowBaseSlope,
  PowExponentSlope,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  kCount
};

}  // namespace tessera::cpu
