#include "ops/points/row_specs.h"

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"

namespace tessera::points {
namespace {}  // namespace

SpecPtr cut_further(const ShardSpec& spec, unsigned mask) {
  if (mask == 0) return spec.shared_from_this();
  const MeshCore& core = *spec.mesh_core();
  DimCut rows;
  if (spec.cut(0)) rows = *spec.cut(0);
  if (!spec.cut(0)) rows.parts = {{{0, spec.sizes()[0]}}};
  int shares = 1;
  Placements placements = spec.placements();
  for (int a = 0; a < static_cast<int>(placements.size()); ++a) {
    if ((mask >> static_cast<unsigned>(a) & 1U) == 0) continue;
    placements[static_cast<std::size_t>(a)] = Shard(0);
    rows.axes.push_back(a);
    shares *= core.axes[static_cast<std::size_t>(a)].size;
  }
  std::vector<Intervals> parts;
  for (const Intervals& part : rows.parts)
    for (const Interval positions : default_partition(total_length(part), shares))
      parts.push_back(part_of(part, positions));
  rows.parts = std::move(parts);
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(spec.dim()));
  cuts[0] = std::move(rows);
  for (int d = 1; d < spec.dim(); ++d) {
    bool kept = spec.cut(d) != nullptr;
    for (int a = 0; kept && a < static_cast<int>(placements.size()); ++a)
      if ((mask >> static_cast<unsigned>(a) & 1U) != 0 && spec.placement(a).is_shard() &&
          spec.placement(a).dim == d)
        kept = false;
    if (kept) cuts[static_cast<std::size_t>(d)] = *spec.cut(d);
  }
  return ShardSpec::make(spec.mesh(), placements, spec.sizes(), std::move(cuts));
}

SpecPtr row_cut(const ShardSpec& spec, unsigned also) {
  unsigned mask = also & ~spec.shard_mask();
  for (int a = 0; a < static_cast<int>(spec.placements().size()); ++a) {
    const Placement& p = spec.placement(a);
    if (p.is_partial() || (p.is_shard() && p.dim != 0)) mask |= 1U << static_cast<unsigned>(a);
  }
  return cut_further(spec, mask);
}

SpecPtr with_rows_of(const ShardSpec& rows, const Dims& sizes) {
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  if (rows.cut(0)) cuts[0] = *rows.cut(0);
  return ShardSpec::make(rows.mesh(), rows.placements(), sizes, std::move(cuts));
}

}  // namespace tessera::points
