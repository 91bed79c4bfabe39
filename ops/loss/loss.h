// Losses. Names and results are PyTorch's. With Mean the value is the mean over the *global* tensor, whatever
// its cuts: sums and counts are added up, never means of parts. The mean over nothing is NaN.
//
// Sharded: losses of pairs are local wherever prediction and target are cut alike (else one of them is
// moved); sums and means stay owed (Partial) until somebody needs the value. Cross entropy sends, where the
// classes are cut, three numbers a position (four with smoothing) in one message, never the logits. Where the
// positions are cut its sum stays owed, too; a mean sends four numbers a rank in one message (sum, count, and
// what is wrong with a target). Backward sends nothing. Gradients with respect to targets that are no class
// numbers as in PyTorch; weights have none.
//
// A target out of range, or a probability outside [0, 1], is refused by the ranks that see it: by all in a
// mean over classes, else by those that hold it, which ends the job with their message; by all with
// TESSERA_CHECK_CALLS=1. On a device nobody waits for the values: there a sum or mean is NaN on every rank,
// and without a reduction the losses are NaN on the ranks that would refuse. TESSERA_CHECK_CALLS=1 waits and
// refuses, as the CPU always does.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

enum class Reduction : std::uint8_t {
  None,
  Mean,
  Sum,
  BatchMean,  // of kl_div: the sum over the size of dim 0
};

// ---- pairs: prediction and target of equal sizes; of the first four they may broadcast, as in PyTorch ----
Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean);
// With d = x - y: d² / (2 beta) where |d| < beta, else |d| - beta / 2.
Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
                      double beta = 1.0);
// d² / 2 where |d| < delta, else delta (|d| - delta / 2).
Tensor huber_loss(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
                  double delta = 1.0);
// -w (y log x + (1 - y) log(1 - x)), logarithms not below -100. x and y outside [0, 1] are refused. The
// weight broadcasts to x.
Tensor binary_cross_entropy(const Tensor& x, const Tensor& y, const Tensor& weight = Tensor(),
                            Reduction reduction = Reduction::Mean);
// The same of sigmoid(x), without overflow; pos_weight multiplies the first term. Both weights broadcast to
// x.
Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight = Tensor(),
                                        Reduction reduction = Reduction::Mean,
                                        const Tensor& pos_weight = Tensor());
// y (log y - x); with log_target exp(y) (y - x).
Tensor kl_div(const Tensor& x, const Tensor& y, Reduction reduction = Reduction::Mean,
              bool log_target = false);

// ---- classes: x [N, C, positions…] or [C], target class numbers (I64) [N, positions…] or [] ----
struct ClassLossOptions {
  Reduction reduction = Reduction::Mean;  // Mean: divided by the sum of the targets' weights
  std::int64_t ignore_index = -100;       // such targets count nothing
  double label_smoothing = 0.0;           // cross_entropy
};
// x: logits. weight: one per class, or undefined. A floating target of x's sizes holds probabilities of
// classes.
Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight = Tensor(),
                     const ClassLossOptions& options = {});
// x: logarithms of probabilities.
Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight = Tensor(),
                const ClassLossOptions& options = {});

}  // namespace tessera
