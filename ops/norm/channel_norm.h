// The operation behind group, instance and batch norm. Internal to ops/norm.
#pragma once
#include "ops/norm/channel_plan.h"

namespace tessera {

struct ChannelNormInputs {
  Tensor x, weight, bias;
  Tensor mean, var;  // where the statistics are given
};
struct ChannelNormResult {
  Tensor y;
  // [4, N, groups] or [4, C]: mean in two terms, variance, number of elements. No gradient.
  Tensor statistics;
};
ChannelNormResult channel_norm(const ChannelNorm& n, const ChannelNormInputs& in);

// t, of which nothing is recorded.
inline Tensor without_gradient(const Tensor& t) { return t.requires_grad() ? t.detach() : t; }

// What backward keeps of the forward pass.
struct ChannelNormSaved {
  SavedTensor x;
  SavedTensor weight;
  SavedTensor bias;
  Tensor statistics;
};
// Gradients of x, weight and bias written with ops, to be differentiated again.
Tensors channel_norm_composed(const BackwardContext& c, const Tensor& dy, const ChannelNormSaved& saved,
                              const ChannelNorm& n);

// Elements of one statistic, as the forward pass found them.
double statistics_count(const ChannelNorm& n, const Tensor& statistics);

}  // namespace tessera
