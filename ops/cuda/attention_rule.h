// Which attention cuDNN is given, decided from sizes, types and positions alone, before anything is called
// (as conv_rule.h does for convolutions); the test cudnn_plans looks for plans that cuDNN refuses afterwards.
//
// cuDNN takes bf16 and f16, all keys at once, without a mask or with the causal one from the first key on.
// What it gives is in half precision, and the backward pass with the same bits every time needs memory of the
// scores' size. So everything else goes to our own kernels: f32 and f64, masks (a row that sees no key must
// give 0, which only its values tell), the blocks of a ring (rounded to half before they are merged they
// would be less exact than on one rank), and sequences whose scores of one head need more than the limit.
#pragma once
#include "ops/cpu/attention_common.h"
#include "ops/cuda/attention_graph.h"

namespace tessera::cuda {

// What the rows see: every key; row i the keys 0 to i; or neither.
enum class AttentionSight : std::uint8_t { All, Causal, Other };
AttentionSight sight_of(const cpu::AttentionMask& mask, const cpu::AttentionSizes& sizes);

// The graph, but for its layouts.
AttentionGraph attention_form(AttentionPass pass, DType dtype, const cpu::AttentionSizes& sizes, bool causal,
                              double scale);

struct AttentionLimits {
  int capability = 90;                               // of the device, as 90 for 9.0
  std::int64_t score_bytes = std::int64_t{2} << 30;  // for the backward pass
};
// Why our own kernels work it out; nullptr: cuDNN does.
const char* why_own_kernel(const AttentionGraph& graph, const AttentionLimits& limits);

// How many samples and key heads (with their query heads) a call of the backward pass may take at once.
struct AttentionPart {
  std::int64_t batch = 1, key_heads = 1;
};
AttentionPart largest_part(const AttentionGraph& backward, std::int64_t score_bytes);

}  // namespace tessera::cuda
