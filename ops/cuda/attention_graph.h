// Attention as cuDNN is asked for it (see cudnn_graphs.h): softmax(q k^T scale) v over all keys at once, in
// bf16 or f16, and its gradients.
#pragma once
#include <cstdint>

#include "runtime/dtype.h"

namespace tessera::cuda {

enum class AttentionPass : std::uint8_t { Forward, Backward };

// [N, H, L, D] in memory: strides in elements; that of the last dim is 1.
struct HeadStrides {
  std::int64_t batch = 0, head = 0, row = 0;
  bool operator==(const HeadStrides&) const = default;
};

// All that a plan depends on. Query head h uses key head h / (heads / key_heads).
struct AttentionGraph {
  AttentionPass pass = AttentionPass::Forward;
  DType dtype = DType::BF16;  // of all but the log-sum-exp [N, H, L], which is f32 and dense
  bool causal = false;        // row i sees keys 0 to i
  float scale = 1.0F;
  std::int64_t batch = 0, heads = 0, key_heads = 0;
  std::int64_t rows = 0, keys = 0;
  std::int64_t d = 0, dv = 0;  // of q and k; of v and out
  HeadStrides q, k, v, out;
  HeadStrides dout, dq, dk, dv_out;  // backward only, else 0
  bool operator==(const AttentionGraph&) const = default;
};
// The tensors of the graph.
enum AttentionTensor : std::int64_t {
  kAttnQ = 1,
  kAttnK,
  kAttnV,
  kAttnOut,
  kAttnLse,
  kAttnDout,
  kAttnDq,
  kAttnDk,
  kAttnDv
};

}  // namespace tessera::cuda
