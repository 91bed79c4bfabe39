#include "ops/shape/layout_ops.h"

#include <algorithm>

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"

namespace tessera {

SpecPtr with_cut(const ShardSpec& spec, int dim, std::int64_t size, const std::optional<DimCut>& cut) {
  Dims sizes = spec.sizes();
  sizes[dim] = size;
  Placements placements = spec.placements();
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(spec.dim()));
  for (int d = 0; d < spec.dim(); ++d)
    if (d != dim && spec.cut(d)) cuts[static_cast<std::size_t>(d)] = *spec.cut(d);
  for (Placement& p : placements)
    if (p.is_shard() && p.dim == dim) p = Replicate();
  if (cut) {
    for (int a : cut->axes) placements[static_cast<std::size_t>(a)] = Shard(dim);
    cuts[static_cast<std::size_t>(dim)] = cut;
  }
  return ShardSpec::make(spec.mesh(), placements, sizes, std::move(cuts));
}

DimCut even_cut(const DimCut& like, std::int64_t n) {
  DimCut cut{like.axes, {}};
  for (Interval i : default_partition(n, static_cast<int>(like.parts.size()))) cut.parts.push_back({i});
  return cut;
}

SpecPtr cut_along(const SpecPtr& spec, int dim, const ShardSpec& like, int from) {
  const CutPtr& cut = like.cut(from);
  const auto is_free = [&](int a) { return spec->placement(a).is_replicate(); };
  if (!cut || spec->cut(dim) || spec->sizes()[dim] != like.sizes()[from]) return spec;
  if (!std::all_of(cut->axes.begin(), cut->axes.end(), is_free)) return spec;
  return with_cut(*spec, dim, spec->sizes()[dim], *cut);
}

SpecPtr cut_further(const ShardSpec& spec, int dim, const std::vector<int>& axes) {
  DimCut cut;
  std::vector<Intervals> before{{{0, spec.sizes()[dim]}}};
  if (spec.cut(dim)) {
    cut.axes = spec.cut(dim)->axes;
    before = spec.cut(dim)->parts;
  }
  int ranks = 1;
  for (int a : axes) ranks *= spec.mesh_core()->axes[static_cast<std::size_t>(a)].size;
  cut.axes.insert(cut.axes.end(), axes.begin(), axes.end());
  for (const Intervals& part : before)
    for (Interval own : default_partition(total_length(part), ranks)) cut.parts.push_back(part_of(part, own));
  return with_cut(spec, dim, spec.sizes()[dim], cut);
}

DimSegments own_segments(const ShardSpec& spec, int rank, int dim) {
  LocalLayout own = layout_of(spec, rank);
  return {std::move(own.dims[static_cast<std::size_t>(dim)]), own.sizes[dim]};
}

BoxMap plan_box_map(const ShardSpec* from, const Dims& from_sizes,
                    FunctionRef<DimSegments(int rank, int dim)> to_dim) {
  auto to_layout = [&](int rank) {
    LocalLayout layout;
    layout.dims.reserve(static_cast<std::size_t>(from_sizes.size()));
    for (int d = 0; d < from_sizes.size(); ++d) {
      auto [segments, length] = to_dim(rank, d);
      layout.dims.push_back(std::move(segments));
      layout.sizes.push_back(length);
    }
    return layout;
  };
  ExchangeProblem problem;
  problem.to = to_layout;
  if (from == nullptr) {
    problem.from = [&](int) {
      LocalLayout layout;
      layout.sizes = from_sizes;
      layout.dims.reserve(static_cast<std::size_t>(from_sizes.size()));
      for (std::int64_t n : from_sizes) layout.dims.push_back({{0, 0, n}});
      return layout;
    };
    problem.matches = [](int, int) { return true; };
    return {plan_exchange(problem), Communicator()};
  }
  const MeshCore& core = *from->mesh_core();
  problem.ranks = core.size;
  problem.rank = core.rank;
  problem.from = [&](int r) { return layout_of(*from, r); };
  problem.matches = [&](int a, int b) { return core.same_coordinates(~from->shard_mask(), a, b); };
  return {plan_exchange(problem), core.comm};
}

}  // namespace tessera
