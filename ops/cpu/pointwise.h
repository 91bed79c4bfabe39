// Element-wise kernels: one output element from the elements at the same index of one or two inputs.
//
// A loop over any strides is first simplified: dims are ordered by the output's strides and merged where the
// memory allows it, so that most calls become one long contiguous run. What stays strided is gathered into
// a block that fits the first-level cache; the vector code therefore only knows contiguous blocks. bf16
// takes the same way through float blocks. f32 transcendental functions are our own polynomials (relative
// error about 1e-7), f64 ones are the C library's. NaN and infinities behave as in PyTorch.
#pragma once
#include <cstdint>

#include "runtime/array.h"

namespace tessera::cpu {

// x has out's sizes (stride 0 where expanded). alpha and beta are used where the comment names them.
enum class UnaryOp : std::uint8_t {
  Neg,
  Abs,
  Square,
  Sign,
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
  Pow,  // maximum and minimum pass NaN on
  Atan2,
  // Gradients: a is the output's gradient dy; b is x, or y where the comment says so.
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
  ClampBackward,      // alpha, beta; passes the gradient on the closed interval
  PowScalarBackward,  // alpha: dy alpha x^(alpha-1)
  // dy f''(x), for gradients of gradients.
  GeluSecond,
  GeluTanhSecond,
  SiluSecond,
  Eq,
  Ne,
  Lt,
  Le,
  Gt,
  Ge,
  kCount
};

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

// Integers: Neg Abs Square Sign Relu Affine Clamp, Add Sub Mul Div (Div: towards zero) Maximum Minimum and
// the comparisons; bool: Mul (and), Maximum, Add (or), Minimum, LogicalNot and the comparisons. Out may be
// the same memory as an input with equal strides; otherwise it must not overlap. Refuses other combinations.
void unary(const UnaryArgs& args);
void binary(const BinaryArgs& args);
void where(const WhereArgs& args);

bool is_comparison(BinaryOp op);
bool writes_bool(UnaryOp op);
const char* name_of(UnaryOp op);
const char* name_of(BinaryOp op);

}  // namespace tessera::cpu
