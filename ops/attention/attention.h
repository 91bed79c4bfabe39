// Scaled dot-product attention: softmax(q kᵀ·scale + mask) v.
//
// Sharded: batch, heads and queries are local. Where keys and values are cut along their length, they travel
// once around the ring of the ranks that hold them (never gathered) while every rank folds the block at hand
// into the running softmax of its own queries, accumulated in float32 (float64 for float64). Shards may be
// uneven or empty. Backward is a ring too: the gradients of keys and values travel with them and end at their
// owners. Dropout of the weights needs no memory of their size: which of them stay is drawn again where it is
// needed, by the weight's place in the whole [N, H, L, S], so it is the same on every mesh and at any block
// of a ring.
#pragma once
#include <optional>

#include "ops/random/random.h"

namespace tessera {

struct AttentionOptions {
  Tensor attn_mask =
      {};  // Bool (true: may be seen) or float (added), broadcast to [N, H, L, S]; or undefined
  bool is_causal = false;            // query i sees keys 0 … i (aligned at the top left); not beside a mask
  std::optional<double> scale = {};  // else 1/√D
  bool enable_gqa = false;           // k and v may have fewer heads, dividing q's
  // Probability that a weight is dropped after the softmax, 0 to 1; those that stay are divided by 1 − p. As
  // dropout(softmax(…), p, generator) would: a call takes one stream of the generator; with 0 it takes none.
  double dropout_p = 0.0;
  GeneratorPtr generator = nullptr;  // needed if dropout_p > 0
};
// q [N, H, L, D], k [N, Hk, S, D], v [N, Hk, S, E] -> [N, H, L, E]; without batch or heads as well ([L, D],
// [N, L, D]), or with more dims in front. Leading dims of q, k and v broadcast (but for heads under
// enable_gqa). A row without any key gives zeros. Whether a hidden key or value that is not finite shows in a
// row is not said (in PyTorch it depends on the kernel): blocks that is_causal hides whole are skipped, here
// and on other ranks.
Tensor scaled_dot_product_attention(const Tensor& q, const Tensor& k, const Tensor& v,
                                    const AttentionOptions& options = {});

}  // namespace tessera
