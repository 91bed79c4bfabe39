// Attention of q, k and v that have four dims and agree in the first. Internal to ops/attention.
#pragma once
#include "ops/attention/attention.h"

namespace tessera {

// `samples`: the size of the weights' first dim as the caller has it, for the generator's batch offset.
Tensor attention_in_four_dims(const Tensor& q, const Tensor& k, const Tensor& v,
                              const AttentionOptions& options, std::int64_t samples);
// Refuses what is not of one floating dtype, a mask of another, one beside is_causal, and a dropout_p that is
// no probability or has no generator.
void check_attention_options(const Tensor& q, const Tensor& k, const Tensor& v,
                             const AttentionOptions& options);

}  // namespace tessera
