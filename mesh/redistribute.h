// Redistribute: the same global tensor under another spec.
//
// Between any two specs of one mesh it is one exchange, plus one reduction if a Partial axis becomes
// Replicate. Partial to Shard is one exchange that adds up (a reduce-scatter); Replicate to Shard or Partial
// and Shard to Partial move nothing.
//
// The same holds between two meshes, if both are made of the same ranks of one communicator, in any order and
// shape: one exchange of the boxes that ranks hold here and shall hold there. What is owed is added up on the
// way if the new spec has no Replicate axis, else made first (no term survives a change of mesh). Meshes of
// differing ranks are refused, on every rank that calls: who is not in a mesh has no spec of it. To leave
// ranks out, give them empty parts.
#pragma once
#include "mesh/exchange_plan.h"

namespace tessera {

// `local` [from's local sizes] -> [to's local sizes]. Collective over the mesh when anything must move (every
// rank decides alike). May return `local` itself or a view of it. Refuses specs of differing global sizes and
// meshes of differing ranks.
Array redistribute(const Array& local, const SpecPtr& from, const SpecPtr& to);

// The mesh axes whose owed sums (or maxima …, all of one kind) are all that has to be made on the way from
// one spec to the other; 0 if it is something else.
unsigned only_reduces(const ShardSpec& from, const ShardSpec& to);
// Several tensors whose specs only_reduces over `axes`, of one dtype and with one reduction: one message.
std::vector<Array> reduce_together(std::span<const Array> terms, const ShardSpec& from, unsigned axes);

// The plan alone; cached per mesh (its last handle may go while tensors still live, so plans are shared). No
// Partial axis may differ between the two, nor be there if they are on two meshes.
std::shared_ptr<const ExchangePlan> redistribute_plan(const SpecPtr& from, const SpecPtr& to);

// Rough number of elements that would travel, over all ranks: what strategies are compared by.
double redistribute_cost(const ShardSpec& from, const ShardSpec& to);

}  // namespace tessera
