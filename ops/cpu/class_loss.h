// Cross entropy and negative log-likelihood of class numbers, row by row: a row is the numbers of one
// position over the classes, x [N, C, S], and a position has one target.
//
// The classes may be those of one rank only: statistics of the rows there, merged with those of other ranks,
// give losses and gradients. With p = softmax(x), target y, weights w, smoothing s over C classes in all:
//   loss = (1 - s) w_y (lse - x_y) + s / C (W lse - Σ w_c x_c),  W = Σ w_c
//   d loss / d x_c = p_c ((1 - s) w_y + s / C W) - (1 - s) w_y [c = y] - s / C w_c
// and, where x are logarithms of probabilities already, -w_y x_y. Positions whose target is `ignore` count
// nothing.
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

struct ClassLossKind {
  bool logits = true;
  std::int64_t classes = 0;  // in all
  std::int64_t ignore = -100;
  double smoothing = 0.0;  // of logits
  // Numbers per row that describe the classes of one rank: largest, sum of exp(x - largest), number of the
  // target's class (0 where it is elsewhere), and with smoothing Σ w_c x_c. Without logits the third alone.
  std::int64_t terms() const { return !logits ? 1 : smoothing > 0 ? 4 : 3; }
};

// Common to what follows. x: [N, C, S], contiguous, floating; target [N, S], I64, contiguous; weights f32
// (f64 for f64), contiguous, or undefined. `here`: position in x of each class, -1 where it is not; empty:
// all are.
struct ClassData {
  Array x;
  Array target;
  Array weight;       // of all classes
  Array weight_here;  // of those in x
  std::vector<std::int64_t> here;
  ClassLossKind kind;
};

// stats [terms, N, S], f32 (f64 for f64).
struct ClassRowsArgs {
  Array stats;
  ClassData data;
};
void class_rows(const ClassRowsArgs& args);

// parts [P, terms, N, S]: everybody's statistics. losses [N, S] of x's type, or undefined; lse [N, S] as the
// statistics. sums (4 elements, f64): 1 if some target is no class, that target; Σ loss, Σ w_y.
struct ClassLossArgs {
  Array losses;
  Array lse;
  Array sums;
  Array parts;
  ClassData data;
};
void class_loss(const ClassLossArgs& args);

// sums [P, 4]: everybody's. loss: one element, Σ loss, over Σ w_y if `mean`; with `each` the losses of all
// positions, as they are. NaN if any target is no class. total (one element, f64): what was divided by.
struct ClassTotalArgs {
  Array loss;
  Array total;
  Array sums;
  bool mean = false;
  bool each = false;
};
void class_total(const ClassTotalArgs& args);

// dx [N, C, S] from dy: [N, S], or one element for all. total (one element, f64): what dy is divided by.
struct ClassGradientArgs {
  Array dx;
  Array dy;
  Array lse;
  Array total;
  ClassData data;
};
void class_loss_gradient(const ClassGradientArgs& args);

}  // namespace tessera::cpu
