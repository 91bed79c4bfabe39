// Attention of q, k and v that have four dims and agree in the first. Internal to ops/attention.
#pragma once
#include "ops/attention/attention.h"

namespace tessera {

Tensor attention_in_four_dims(const Tensor& q, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options);
// Refuses what is not of one floating dtype, a mask of another, and one beside is_causal.
void check_attention_dtypes(const Tensor& q, const Tensor& k, const Tensor& v,
                            const AttentionOptions& options);

}  // namespace tessera
