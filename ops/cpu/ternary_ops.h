// The element-wise functions of three numbers, by name; also read by the vector kernels, which see nothing
// else of the library. Most are gradients: one pass over memory in the place of several.
#pragma once
#include <cstdint>

namespace tessera::cpu {

enum class TernaryOp : std::uint8_t {
  // a = dy, b the operand whose gradient it is, c the other: nothing where b loses, half of dy on ties.
  // Nobody loses beside a NaN.
  MaximumBackward,
  MinimumBackward,
  // a = x, b = min, c = max: which share of dy goes to x, to min, to max. Half to x and half to a bound that
  // it ties with below (above) the other one. All of it goes to max where the bounds cross, to x where it
  // lies on both, and to x alone where there is a NaN.
  ClampShare,
  ClampMinShare,
  ClampMaxShare,
  Share,      // a b; 0 where b is 0, whatever a is
  Tie,        // 1 where a is b, else 0
  TieOrNan,   // 1 where a is NaN too
  Quotient,   // c (a / b); 0 in the place of a quotient by 0
  Deviation,  // alpha a (b - c)
  Exp,        // a exp(b - c); in both a c that is not finite counts as 0
  MaxNorm,    // what a row of norm b is multiplied by so that it is no longer than alpha, where a is above 0
  kCount
};

}  // namespace tessera::cpu
