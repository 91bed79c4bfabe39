// What the user may say about cuDNN.
//
//   TESSERA_CUDNN=0   convolutions and attention by our own kernels only: slow, for comparison.
//   TESSERA_ATTENTION_SCORES=n   MiB that a call of attention's backward pass may take for its scores when
//                                cuDNN works it out; 2048 otherwise. It is divided until it takes no more.
//   TESSERA_CUDNN_WORKSPACE=n    MiB that a call of cuDNN may take beside its operands (and those scores);
//                                4096 otherwise. Of cuDNN's plans the best that takes no more is made.
#pragma once
#include <cstdint>

namespace tessera::cuda {

bool cudnn_allowed();
void allow_cudnn(bool allowed);

std::int64_t attention_score_bytes();
void set_attention_score_bytes(std::int64_t bytes);

std::int64_t cudnn_workspace_bytes();
void set_cudnn_workspace_bytes(std::int64_t bytes);

}  // namespace tessera::cuda
