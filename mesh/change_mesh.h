// Redistribute between two meshes that are made of the same ranks. Internal to mesh/.
#pragma once
#include <optional>

#include "mesh/exchange_plan.h"

namespace tessera {

// `local` of `from` as `to` wants it; the specs have one global size, and meshes of their own. Collective
// over the ranks. What is owed on the old mesh is added up on the way where every element has one place on
// the new one, and made first elsewhere. Refuses meshes of differing ranks before anything is sent. May
// return a view of `local`, or `local` itself.
Array change_mesh(const Array& local, const SpecPtr& from, const SpecPtr& to);

// The plan alone, cached with the mesh of `from` while both meshes live; `from` owes nothing.
std::shared_ptr<const ExchangePlan> mesh_change_plan(const SpecPtr& from, const SpecPtr& to);

// What a rank of a Partial spec holds where the value is another rank's term: the reduction that it has to
// change nothing of; none for ranks whose term is the value itself.
std::optional<ReduceOp> idle_term(const ShardSpec& spec, int rank);

}  // namespace tessera
