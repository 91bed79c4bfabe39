#include "mesh/redistribute.h"

#include <bit>
#include <map>
#include <tuple>

#include "mesh/change_mesh.h"
#include "mesh/mesh_state.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera {
namespace {

struct PlanCache {
  struct Entry {
    SpecPtr from;  // held, so that the addresses in the key stay theirs
    SpecPtr to;
    std::shared_ptr<const ExchangePlan> plan;
  };
  // With the axes whose contributions are added up on the way.
  std::map<std::tuple<const ShardSpec*, const ShardSpec*, unsigned>, Entry> entries;
};
const int kPlanTag = 0;

ExchangeProblem problem_of(const ShardSpec& from, const ShardSpec& to, unsigned free_axes) {
  const MeshCore* core = from.mesh_core().get();
  // Along axes that do not cut the source, every coordinate holds the element: take one's own.
  const unsigned all = (1U << core->axes.size()) - 1U;
  const unsigned match = all & ~from.shard_mask() & ~free_axes;
  return {core->size, core->rank, [&from](int r) { return layout_of(from, r); },
          [&to](int r) { return layout_of(to, r); },
          [core, match](int a, int b) { return core->same_coordinates(match, a, b); }};
}

// Axes whose Partial must be reduced, grouped by what they become.
struct PartialChange {
  unsigned to_replicate = 0;
  unsigned to_shard = 0;
  unsigned from_replicate = 0;  // Replicate (or Shard) becomes Partial: all but coordinate 0 are cleared
  ReduceOp op = ReduceOp::Sum;
};

// Whether terms of two reductions are owed, and not all stay so. Reductions are made in the order of their
// first axes: one cannot be made while one before it is still owed, so all are.
bool makes_two_kinds(const ShardSpec& from, const ShardSpec& to) {
  std::optional<ReduceOp> op;
  bool two = false;
  bool any_made = false;
  for (std::size_t a = 0; a < from.placements().size(); ++a) {
    const Placement& p = from.placements()[a];
    if (!p.is_partial() || from.mesh_core()->axes[a].size == 1) continue;
    two = two || (op && *op != p.op);
    any_made = any_made || !(to.placements()[a] == p);
    op = p.op;
  }
  return two && any_made;
}

PartialChange partial_change(const ShardSpec& from, const ShardSpec& to) {
  PartialChange change;
  const bool mixed = makes_two_kinds(from, to);  // they cannot share the summing exchange either
  for (int a = 0; a < static_cast<int>(from.placements().size()); ++a) {
    const Placement& p = from.placement(a);
    const Placement& q = to.placement(a);
    const unsigned bit = 1U << static_cast<unsigned>(a);
    const bool alone = from.mesh_core()->axes[static_cast<std::size_t>(a)].size == 1;
    if (p.is_partial() && !alone) {  // one rank owes nothing to others
      change.op = p.op;
      if (q.is_shard() && !mixed) {
        change.to_shard |= bit;
      } else if (mixed || !(q == p)) {
        change.to_replicate |= bit;
      }
    }
    if (q.is_partial() && (mixed || !(p == q))) change.from_replicate |= bit;
  }
  return change;
}

Array reduce_axes(const Array& local, const DeviceMesh& mesh, unsigned mask, const ShardSpec& from) {
  Array sum = local.clone();
  // Axes with one op go in one message; differing ops (rare) one after another.
  while (mask != 0) {
    unsigned group = 0;
    ReduceOp op = ReduceOp::Sum;
    for (int a = 0; a < mesh.ndim(); ++a) {
      const unsigned bit = 1U << static_cast<unsigned>(a);
      if ((mask & bit) == 0 || (group != 0 && from.placement(a).op != op)) continue;
      op = from.placement(a).op;
      group |= bit;
    }
    mesh.group(group).all_reduce(sum, op).wait();
    mask &= ~group;
  }
  return sum;
}

std::shared_ptr<const ExchangePlan> cached_plan(const SpecPtr& from, const SpecPtr& to, unsigned summed) {
  const DeviceMesh mesh = from->mesh();
  auto& cache = mesh.cache()->slot<PlanCache>(&kPlanTag);
  const auto key = std::make_tuple(from.get(), to.get(), summed);
  if (auto it = cache.entries.find(key); it != cache.entries.end()) return it->second.plan;
  if (cache.entries.size() >= MeshCache::kMaxEntries) cache.entries.clear();
  ++mesh.cache()->planned;
  auto plan = std::make_shared<const ExchangePlan>(plan_exchange(problem_of(*from, *to, summed)));
  cache.entries.emplace(key, PlanCache::Entry{from, to, plan});
  return plan;
}

Array exchange_layout(const Array& local, const SpecPtr& from, const SpecPtr& to) {
  const std::shared_ptr<const ExchangePlan> held = cached_plan(from, to, 0);
  const ExchangePlan& plan = *held;
  if (plan.local_only() && plan.own.pieces.size() == 1 && plan.covers)
    return local.box(plan.own.pieces[0].from, plan.own.pieces[0].extent);
  Array out = Array::empty(plan.to_sizes, local.dtype(), local.device());
  run_exchange(plan, from->mesh_core()->comm, out, local);
  return out;
}

// The reduction, where all that changes is that cuts become what is owed, which every rank makes of its part.
std::optional<ReduceOp> owed_instead_of_cut(const ShardSpec& from, const ShardSpec& to) {
  std::optional<ReduceOp> op;
  bool cut_is_owed = false;
  for (std::size_t a = 0; a < from.placements().size(); ++a) {
    const Placement& p = from.placements()[a];
    const Placement& q = to.placements()[a];
    if (q.is_partial()) {  // what is owed already, too: one reduction for which nothing changes everywhere
      if (op && *op != q.op) return std::nullopt;
      op = q.op;
    }
    if (p == q) continue;
    if (!p.is_shard() || !q.is_partial()) return std::nullopt;
    cut_is_owed = true;
  }
  if (!cut_is_owed) return std::nullopt;
  for (int d = 0; d < from.dim(); ++d) {
    if (!from.cut(d) || (to.cut(d) && *to.cut(d) == *from.cut(d))) continue;
    for (int a : from.cut(d)->axes)
      if (to.placement(a).is_shard()) return std::nullopt;
  }
  return op;
}

// A rank's part among elements that change nothing.
Array part_of_sum(const Array& local, const SpecPtr& from, const SpecPtr& to, ReduceOp op) {
  const std::shared_ptr<const ExchangePlan> plan = cached_plan(from, to, 0);
  Array out = Array::empty(plan->to_sizes, local.dtype(), local.device());
  fill_identity(out, op);
  for (const ExchangePiece& piece : plan->own.pieces)
    copy_strided(out.box(piece.to, piece.extent), local.box(piece.from, piece.extent));
  return out;
}

SpecPtr reduced_spec(const ShardSpec& from, unsigned mask) {
  Placements p = from.placements();
  for (std::size_t a = 0; a < p.size(); ++a)
    if ((mask >> a & 1U) != 0) p[a] = Replicate();
  return with_placements(from, p);
}

}  // namespace

std::shared_ptr<const ExchangePlan> redistribute_plan(const SpecPtr& from, const SpecPtr& to) {
  return from->mesh_core() == to->mesh_core() ? cached_plan(from, to, 0) : mesh_change_plan(from, to);
}

Array redistribute(const Array& local, const SpecPtr& from, const SpecPtr& to) {
  if (from == to) return local;
  TS_CHECK(from->sizes() == to->sizes(), "redistribute", "global sizes differ: {} and {}",
           from->sizes().str(), to->sizes().str());
  if (from->mesh_core() != to->mesh_core()) return change_mesh(local, from, to);
  if (!from->has_partial() && !to->has_partial())
    return same_layout(*from, *to) ? local : exchange_layout(local, from, to);
  if (const std::optional<ReduceOp> op = owed_instead_of_cut(*from, *to))
    return part_of_sum(local, from, to, *op);
  PartialChange change = partial_change(*from, *to);
  const DeviceMesh mesh = from->mesh();
  Array value = local;
  SpecPtr spec = from;
  if (change.to_replicate != 0) {
    value = reduce_axes(value, mesh, change.to_replicate, *from);
    spec = reduced_spec(*spec, change.to_replicate);
  }
  if (change.to_shard != 0) {
    const std::shared_ptr<const ExchangePlan> plan = cached_plan(spec, to, change.to_shard);
    Array out = Array::empty(plan->to_sizes, value.dtype(), value.device());
    run_summing(*plan, mesh.comm(), out, value, change.op);
    value = out;
  } else if (!same_layout(*spec, *to)) {
    value = exchange_layout(value, spec, to);
  }
  for (int a = 0; a < mesh.ndim(); ++a) {
    if ((change.from_replicate >> static_cast<unsigned>(a) & 1U) == 0 || mesh.coordinate(a) == 0) continue;
    value = Array::empty(value.sizes(), value.dtype(), value.device());
    fill_identity(value, *idle_term(*to, mesh.rank()));
    break;
  }
  return value;
}

unsigned only_reduces(const ShardSpec& from, const ShardSpec& to) {
  if (!from.has_partial() || from.mesh_core() != to.mesh_core() || makes_two_kinds(from, to)) return 0;
  const PartialChange change = partial_change(from, to);
  if (change.to_shard != 0 || change.from_replicate != 0) return 0;
  for (std::size_t a = 0; a < from.placements().size(); ++a)
    if ((change.to_replicate >> a & 1U) != 0 && from.placements()[a].op != change.op) return 0;
  return same_layout(*reduced_spec(from, change.to_replicate), to) ? change.to_replicate : 0;
}

std::vector<Array> reduce_together(std::span<const Array> terms, const ShardSpec& from, unsigned axes) {
  std::int64_t all = 0;
  for (const Array& t : terms) all += t.numel();
  const Array flat = Array::empty({all}, terms[0].dtype(), terms[0].device());
  std::vector<Array> sums;
  sums.reserve(terms.size());
  std::int64_t at = 0;
  for (const Array& t : terms) {
    sums.push_back(flat.slice(0, at, t.numel()).reshape(t.sizes()));
    copy_strided(sums.back(), t);
    at += t.numel();
  }
  from.mesh().group(axes).all_reduce(flat, from.placement(std::countr_zero(axes)).op).wait();
  return sums;
}

double redistribute_cost(const ShardSpec& from, const ShardSpec& to) {
  if (&from == &to) return 0;
  const double n = static_cast<double>(numel_of(from.sizes()));
  double cost = 0;
  bool moved = false;
  for (int a = 0; a < static_cast<int>(from.placements().size()); ++a) {
    const Placement& p = from.placement(a);
    const Placement& q = to.placement(a);
    const double others = from.mesh_core()->axes[static_cast<std::size_t>(a)].size - 1;
    if (p.is_partial() && !(p == q)) cost += n * others * (q.is_shard() ? 1 : 2);
    if (p.is_shard() && q.is_shard() && p.dim != q.dim) moved = true;
    // A cut that becomes owed moves nothing yet: it counts as what the sum will move.
    if (p.is_shard() && !q.is_shard()) cost += n * others;
  }
  if (cost == 0 && !moved) {
    for (int d = 0; d < from.dim(); ++d)  // re-cut points of one dim
      if (from.cut(d) && to.cut(d) && from.cut(d) != to.cut(d) && !(*from.cut(d) == *to.cut(d))) moved = true;
  }
  return cost + (moved ? n : 0);
}

}  // namespace tessera
