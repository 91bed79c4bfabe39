// Scaled dot-product attention: softmax(q kᵀ·scale + mask) v.
//
// Sharded: batch, heads and queries are local. Where keys and values are cut along their length, they travel
// once around the ring of the ranks that hold them (never gathered) while every rank folds the block at hand
// into the running softmax of its own queries, accumulated in float32 (float64 for float64). Shards may be
// uneven or empty. Backward is a ring too: the gradients of keys and values travel with them and end at their
// owners.
#pragma once
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

struct AttentionOptions {
  Tensor mask = {};  // Bool (true: may be seen) or float (added), broadcast to [N, H, L, S]; or undefined
  bool is_causal = false;            // query i sees keys 0 … i (aligned at the top left); not beside a mask
  std::optional<double> scale = {};  // else 1/√D
  bool enable_gqa = false;           // k and v may have fewer heads, dividing q's
};
// q [N, H, L, D], k [N, Hk, S, D], v [N, Hk, S, E] -> [N, H, L, E]; without batch or heads as well ([L, D],
// [N, L, D]), or with more dims in front. Leading dims of q, k and v broadcast (but for heads under
// enable_gqa). A row without any key gives zeros. Whether a hidden key or value that is not finite shows in a
// row is not said (in PyTorch it depends on the kernel): blocks that is_causal hides whole are skipped, here
// and on other ranks.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace tessera
