// Losses that are sums over pairs of numbers, and their derivatives. NaN and infinities give what PyTorch
// gives.
#pragma once
#include "ops/cpu/pair_loss_kinds.h"
#include "runtime/array.h"

namespace tessera::cpu {

struct PairLossKind {
  PairLoss loss = PairLoss::Square;
  double alpha = 1.0;
};

// out = scale · factor · part. x, target (and positive, for LogitEntropy: the weight of positive targets;
// undefined: ones) have out's sizes and floating type, any strides. factor: one element of that type;
// undefined: 1.
struct PairLossArgs {
  Array out;
  Array x;
  Array target;
  Array positive;
  Array factor;
  PairLossKind kind;
  PairPart part = PairPart::Value;
  double scale = 1.0;
};
void pair_loss(const PairLossArgs& args);

// out (one element) = scale · the sum of all losses, summed in double in pieces that do not depend on the
// number of threads. out, factor and part of the arguments above: out's type may not differ, the others play
// no part.
void pair_loss_sum(const PairLossArgs& args);

// fault (one element, f64): 0, or 1 if some x is outside [0, 1] or NaN, or else 2 if some target is.
struct UnitRangeArgs {
  Array fault;
  Array x;
  Array target;
};
void unit_range(const UnitRangeArgs& args);

}  // namespace tessera::cpu
