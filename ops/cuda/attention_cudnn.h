// Attention by cuDNN, where the rule (attention_rule.h) gives it to it.
#pragma once
#include "ops/cpu/attention_common.h"

namespace tessera::cuda {

// False: our own kernels are to do it, and nothing was done. Launched on the current stream; the operands
// were checked.
bool attention_forward_by_cudnn(const cpu::AttentionForwardArgs& args, const cpu::AttentionSizes& sizes);
// Results of blocks come rounded to q's type; the state they are merged into is f32.
bool attention_accumulate_by_cudnn(const cpu::AttentionArgs& args, const cpu::AttentionSizes& sizes);
bool attention_backward_by_cudnn(const cpu::AttentionBackwardArgs& args, const cpu::AttentionSizes& sizes);

}  // namespace tessera::cuda
