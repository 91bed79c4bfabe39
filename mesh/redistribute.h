// Redistribute: the same global tensor under another spec.
//
// Between any two specs of one mesh it is one exchange, plus one reduction if a Partial axis becomes
// Replicate. Partial to Shard is one exchange that adds up (a reduce-scatter); Replicate to Shard or Partial
// and Shard to Partial move nothing.
#pragma once
#include "mesh/exchange_plan.h"

namespace tessera {

// Collective over the mesh when anything must move (every rank decides alike). May return `local` itself or a
// view of it.
Array redistribute(const Array& local, const SpecPtr& from, const SpecPtr& to);

// The mesh axes whose owed sums (or maxima …, all of one kind) are all that has to be made on the way from
// one spec to the other; 0 if it is something else.
unsigned only_reduces(const ShardSpec& from, const ShardSpec& to);
// Several tensors whose specs only_reduces over `axes`, of one dtype and with one reduction: one message.
std::vector<Array> reduce_together(std::span<const Array> terms, const ShardSpec& from, unsigned axes);

// The plan alone; cached per mesh (its last handle may go while tensors still live, so plans are shared). No
// Partial axis may differ between the two.
std::shared_ptr<const ExchangePlan> redistribute_plan(const SpecPtr& from, const SpecPtr& to);

// Rough number of elements that would travel, over all ranks: what strategies are compared by.
double redistribute_cost(const ShardSpec& from, const ShardSpec& to);

}  // namespace tessera
