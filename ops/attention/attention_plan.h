// How attention is split over a mesh. Internal to ops/attention.
#pragma once
#include "ops/op.h"

namespace tessera {

// Axes on which keys and values travel in a ring, and where everything ends up.
struct AttentionPlan {
  unsigned ring = 0;       // mesh axes that cut the keys' length
  std::vector<int> ranks;  // mesh ranks of this rank's ring, in group order
  int place = 0;           // this rank's position in it
  SpecPtr q, k, v, mask, out, lse;
  unsigned key_sums = 0;  // axes over which the gradients of k and v are sums that are owed
};

struct AttentionShape {
  Dims q, k, v, mask;  // global; mask has four dims or is empty
  Dims out() const { return {q[0], q[1], q[2], v[3]}; }
  Dims lse() const { return {q[0], q[1], q[2]}; }
  Dims scores() const { return {q[0], q[1], q[2], k[2]}; }
};

// From the specs of q, k, v and mask (null: absent). Decided axis by axis: the batch or head dim if q, k or v
// is cut there, the queries if q or the keys are cut along their length, else what the mask alone is cut by,
// else nothing is cut. Where an input is cut otherwise (along the width of the heads, say), inputs change
// their cut to batch, heads or length, whichever moves least: q, k and v are never made whole. The mask is
// never cut along the keys.
AttentionPlan plan_attention(const std::vector<SpecPtr>& inputs, const AttentionShape& shape);

// Global positions of local rows.
std::vector<std::int64_t> positions_of(const Intervals& intervals);

}  // namespace tessera
