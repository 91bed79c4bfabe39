#include "mesh/change_mesh.h"

#include <map>
#include <set>

#include "mesh/mesh_state.h"
#include "mesh/redistribute.h"
#include "runtime/error.h"

namespace tessera {
namespace {

// Plans lie with the mesh that is left. They keep no other mesh alive: a mesh has communicators, of which
// there are not many. The specs of the mesh that is entered are kept by that mesh itself, so that equal ones
// that are made anew for every call are the same object.
struct ChangeCache {
  struct Entry {
    SpecPtr from;
    std::weak_ptr<const ShardSpec> to;
    std::shared_ptr<const ExchangePlan> plan;
  };
  std::map<std::pair<const ShardSpec*, const ShardSpec*>, Entry> entries;
};
struct EnteredSpecs {
  std::set<SpecPtr> held;
};
const int kChangeTag = 0;
const int kEnteredTag = 0;

// A mesh axis of one rank owes nothing and copies nothing.
bool alone(const ShardSpec& spec, int axis) {
  return spec.mesh_core()->axes[static_cast<std::size_t>(axis)].size == 1;
}

// Whether terms that are owed can be added up where they arrive: one reduction, and nobody adds the same
// twice.
std::optional<ReduceOp> summed_on_arrival(const ShardSpec& from, const ShardSpec& to) {
  std::optional<ReduceOp> op;
  for (int a = 0; a < static_cast<int>(from.placements().size()); ++a) {
    const Placement& p = from.placement(a);
    if (!p.is_partial() || alone(from, a)) continue;
    if (op && *op != p.op) return std::nullopt;
    op = p.op;
  }
  for (int a = 0; a < static_cast<int>(to.placements().size()); ++a)
    if (to.placement(a).is_replicate() && !alone(to, a)) return std::nullopt;
  return op;
}

ExchangePlan plan_change(const ShardSpec& from, const ShardSpec& to) {
  const MeshCore& left = *from.mesh_core();
  const std::vector<int> entered = left.comm.ranks_in(to.mesh_core()->comm);
  TS_CHECK(!entered.empty(), "redistribute",
           "the meshes are made of different ranks: {} and {}; both need the same ranks of one communicator "
           "(a rank that is to hold nothing takes an empty part)",
           from.str(), to.str());
  const auto place = [&entered](int r) { return entered[static_cast<std::size_t>(r)]; };
  // Of copies everybody takes the one with its own coordinates on the mesh that is left, so its own where it
  // has one; of terms that are owed, all.
  const unsigned all = (1U << left.axes.size()) - 1U;
  const unsigned match = all & ~from.shard_mask() & ~from.partial_mask();
  return plan_exchange(
      {left.size, left.rank, [&from](int r) { return layout_of(from, r); },
       [&](int r) { return layout_of(to, place(r)); },
       [&](int a, int b) { return left.same_coordinates(match, a, b) && !idle_term(to, place(b)); }});
}

void keep(const SpecPtr& spec) {
  auto& held = spec->mesh().cache()->slot<EnteredSpecs>(&kEnteredTag).held;
  if (held.size() >= MeshCache::kMaxEntries) held.clear();
  held.insert(spec);
}

}  // namespace

std::optional<ReduceOp> idle_term(const ShardSpec& spec, int rank) {
  if (!spec.has_partial()) return std::nullopt;
  const MeshCore& core = *spec.mesh_core();
  const auto& placements = spec.placements();
  // Reductions are made in the order of their first axes; the first one that this rank only adds to decides.
  for (std::size_t a = 0; a < placements.size(); ++a) {
    if (!placements[a].is_partial() || core.axes[a].size == 1) continue;
    for (std::size_t b = 0; b < placements.size(); ++b)
      if (placements[b] == placements[a] && core.coordinate(static_cast<int>(b), rank) != 0)
        return placements[a].op;
  }
  return std::nullopt;
}

std::shared_ptr<const ExchangePlan> mesh_change_plan(const SpecPtr& from, const SpecPtr& to) {
  const DeviceMesh mesh = from->mesh();
  auto& entries = mesh.cache()->slot<ChangeCache>(&kChangeTag).entries;
  const auto key = std::make_pair(from.get(), to.get());
  if (auto it = entries.find(key); it != entries.end() && it->second.to.lock() == to) return it->second.plan;
  if (entries.size() >= MeshCache::kMaxEntries) entries.clear();
  auto plan = std::make_shared<const ExchangePlan>(plan_change(*from, *to));
  ++mesh.cache()->planned;
  keep(to);
  entries.insert_or_assign(key, ChangeCache::Entry{from, to, plan});
  return plan;
}

Array change_mesh(const Array& local, const SpecPtr& from, const SpecPtr& to) {
  const std::optional<ReduceOp> summed = summed_on_arrival(*from, *to);
  const SpecPtr source = summed ? from : without_partial(*from);
  const std::shared_ptr<const ExchangePlan> plan = mesh_change_plan(source, to);
  const Array value = redistribute(local, from, source);
  if (!summed && plan->local_only() && plan->own.pieces.size() == 1 && plan->covers)
    return value.box(plan->own.pieces[0].from, plan->own.pieces[0].extent);
  Array out = Array::empty(plan->to_sizes, value.dtype(), value.device());
  const Communicator& comm = from->mesh_core()->comm;
  const std::optional<ReduceOp> idle = idle_term(*to, to->mesh_core()->rank);
  if (summed) {
    run_summing(*plan, comm, out, value, *summed);
  } else {
    run_exchange(*plan, comm, out, value);
  }
  if (idle) fill_identity(out, *idle);
  return out;
}

}  // namespace tessera
