// Attention on local arrays, keys and values possibly travelling round a ring. Internal to ops/attention.
//
// At step t a rank works on the block that started t places before it, while the next block is already under
// way. Backward: the gradients of a block follow it. They start at the first rank after the owner, every rank
// adds its term, and the last hop brings them home, so they travel as far as the block itself did.
#pragma once
#include "ops/attention/attention_plan.h"
#include "ops/cpu/attention.h"

namespace tessera {

struct RingSetup {
  double scale = 1.0;
  bool causal = false;
  const AttentionPlan* plan = nullptr;  // null: plain
  cpu::AttentionDropout dropout = {};   // its positions are filled in block by block
};

// out [N, H, L, E] of q's dtype and lse [N, H, L].
struct RingForward {
  Array out, lse;
};
RingForward ring_forward(const RingSetup& s, const Array& q, const Array& k, const Array& v,
                         const Array& mask);

struct RingBackwardIn {
  Array dout, q, k, v, out, lse, mask;
  bool mask_gradient = false;
  bool key_gradients = true;  // of keys and values: else nothing travels for them
};
struct RingBackward {
  Array dq;
  Array dk, dv;  // whatever was in memory if not asked for
  Array dmask;   // [N, H, L, S] over all keys, if asked for
};
RingBackward ring_backward(const RingSetup& s, const RingBackwardIn& in);

}  // namespace tessera
