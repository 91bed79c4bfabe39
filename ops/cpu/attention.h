// Scaled dot-product attention with a running softmax.
//
// softmax(q k^T scale + mask) v for keys that arrive in blocks: the state of a query row is the largest score
// so far m, l = sum exp(score - m), and o = sum exp(score - m) v. Folding in one more block of keys
// rescales l and o by exp(m_old - m_new) (Milakov and Gimelshein 2018; Dao et al. 2022). The state is
// all that a ring of ranks must keep while keys and values travel, and blocks may come in any order.
// The backward pass recomputes the probabilities from lse = m + log l, block by block as well.
//
// Shapes: q, o, out, dout [N, H, L, D]; k, v [N, Hk, S, D] with H a multiple of Hk (query head h uses key
// head h / (H / Hk)); v may have its own last size Dv, which o, out and dout then share; row_max, row_sum,
// lse, delta [N, H, L]. The last dim of q, k, v, o, out, dout, dq, dk, dv has stride 1; other strides are
// free. q, k, v, out, dout share a floating dtype; the state and the gradients dq, dk, dv are "accumulators":
// f32 for f32, bf16 and f16, f64 for f64.
#pragma once
#include <cstdint>

#include "runtime/array.h"
#include "runtime/rng_key.h"

namespace tessera::cpu {

// Which weights are dropped after the softmax; the others count 1 / (1 - p) times. The weight of [n, h, i, j]
// draws what element [n, h, i, j] of the whole tensor of weights draws (runtime/rng.h): row_sum, lse and
// delta are those without dropout.
struct AttentionDropout {
  double p = 0.0;  // 0 to 1; 0: none
  RngKey random;
  Dims sizes = {};  // [N, H, L, S] of the whole
  std::int64_t index_offset = 0;
  // By dim: global indices of the local ones; null: 0, 1, 2, ...
  const std::int64_t* positions[4] = {};

  bool any() const { return p > 0.0; }
  // Kept is what draws a word of at least this ...
  std::uint32_t limit() const;
  // ... and counts so much: 0 where nothing is kept.
  double factor() const;
};

// Which keys a query sees, and which of the weights count.
struct AttentionMask {
  bool causal = false;
  // Global indices of the local rows and keys, increasing or not; null: 0, 1, 2, ... Used when causal: query
  // i sees key j if k_positions[j] <= q_positions[i].
  const std::int64_t* q_positions = nullptr;
  const std::int64_t* k_positions = nullptr;
  // Undefined, or [N, H, L, S] with any strides (0 allowed): bool (true: keep), or added to the scaled scores
  // (dtype of q, or an accumulator).
  Array mask;
  AttentionDropout dropout = {};
};

struct AttentionArgs {
  Array q, k, v;
  Array o;  // accumulator, not yet divided by row_sum
  // Accumulator, contiguous; largest scaled score, or what else o and row_sum are relative to (a device's
  // library gives a block's log-sum-exp); -inf before the first key.
  Array row_max;
  Array row_sum;  // accumulator, contiguous
  double scale = 1.0;
  AttentionMask mask;
};
// o = 0, row_max = -inf, row_sum = 0.
void attention_init(const Array& o, const Array& row_max, const Array& row_sum);
void attention_accumulate(const AttentionArgs& args);

// out = o / row_sum (0 for rows without any key), lse = row_max + log(row_sum) (-inf for such rows).
struct AttentionFinishArgs {
  Array out;  // may be the same memory as o
  Array lse;  // accumulator, contiguous; undefined: not written
  Array o, row_max, row_sum;
};
void attention_finish(const AttentionFinishArgs& args);

// All keys at once: init, accumulate and finish in one pass, without the state in memory.
struct AttentionForwardArgs {
  Array out;
  Array lse;  // accumulator, contiguous; undefined: not written
  Array q, k, v;
  double scale = 1.0;
  AttentionMask mask;
};
void attention_forward(const AttentionForwardArgs& args);

// delta = rowsum(dout * out), an accumulator, contiguous. Where a single key has all the weight, out is its v
// and delta equals its dout v to the last bit, so that the gradient of its score is exactly 0.
void attention_delta(const Array& delta, const Array& dout, const Array& out);

// Gradients that one block of keys gives; added to dq, dk, dv, or written there (and written to dmask if
// defined: accumulator [N, H, L, S], contiguous, gradient of the scaled scores). Rows with lse = -inf give
// none.
struct AttentionBackwardArgs {
  Array dq, dk, dv;
  Array dmask;
  Array dout, q, k, v;
  Array lse, delta;
  double scale = 1.0;
  AttentionMask mask;
  // The result of the forward pass over all keys, these and others: a device's library makes its own delta of
  // it. Undefined: only delta says the same.
  Array out = {};
  // Nothing was added yet: what the memory holds does not count.
  bool first_of_dq = false;
  bool first_of_keys = false;  // of dk and dv
  // Null: delta is there. Else whether it is; who reads it makes it of dout and out before.
  bool* delta_made = nullptr;
};
void attention_backward(const AttentionBackwardArgs& args);

}  // namespace tessera::cpu
