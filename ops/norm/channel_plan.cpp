#include "ops/norm/channel_plan.h"

#include "mesh/mesh_state.h"
#include "ops/reduce/groups.h"

namespace tessera {
namespace {

std::int64_t channels_of_group(const ChannelNorm& n) { return n.groups == 0 ? 1 : n.sizes[1] / n.groups; }

// Group of every channel that `rank` holds: counted on this rank where groups are whole, else globally.
std::vector<std::int64_t> groups_on(const ChannelNorm& n, const ShardSpec* x, int rank) {
  const std::int64_t size = channels_of_group(n);
  std::vector<std::int64_t> of_channel;
  of_channel.reserve(static_cast<std::size_t>(n.sizes[1]));
  if (x == nullptr || groups_whole(n, *x)) {
    const std::int64_t held = x == nullptr ? n.sizes[1] : x->local_sizes(rank)[1];
    for (std::int64_t c = 0; c < held; ++c) of_channel.push_back(c / size);
    return of_channel;
  }
  for (const Interval i : x->intervals(1, rank))
    for (std::int64_t c = i.lo; c < i.hi; ++c) of_channel.push_back(c / size);
  return of_channel;
}

unsigned mask_of(const ChannelNorm& n, const ShardSpec& x) {
  Dims dims;
  if (!n.per_sample) dims.push_back(0);
  if (!groups_whole(n, x)) dims.push_back(1);
  for (int d = 2; d < x.dim(); ++d) dims.push_back(d);
  return cutting_axes(x, dims);
}

// Elements of every group of channels of one rank (of one sample, or of all its samples).
void add_counts(const ChannelNorm& n, const Dims& local, const std::vector<std::int64_t>& of_channel,
                std::int64_t groups, std::vector<double>& counts) {
  double per_channel = n.per_sample ? 1.0 : static_cast<double>(local[0]);
  for (int d = 2; d < local.size(); ++d) per_channel *= static_cast<double>(local[d]);
  const std::size_t first = counts.size();
  counts.resize(first + static_cast<std::size_t>(groups));
  for (const std::int64_t g : of_channel) counts[first + static_cast<std::size_t>(g)] += per_channel;
}

DimCut divided(const DimCut& cut, std::int64_t by) {
  DimCut groups = cut;
  for (Intervals& part : groups.parts)
    for (Interval& i : part) i = {i.lo / by, i.hi / by};
  return groups;
}

std::optional<DimCut> copied(const CutPtr& cut) { return cut ? std::optional<DimCut>(*cut) : std::nullopt; }

}  // namespace

bool groups_whole(const ChannelNorm& n, const ShardSpec& x) {
  const CutPtr& cut = x.cut(1);
  const std::int64_t size = channels_of_group(n);
  if (!cut || size == 1) return true;
  for (const Intervals& part : cut->parts)
    for (const Interval i : part)
      if (i.lo % size != 0 || i.hi % size != 0) return false;
  return true;
}

ChannelPlan channel_plan(const ChannelNorm& n, const ShardSpec* x) {
  ChannelPlan p;
  const int own = x == nullptr ? 0 : x->mesh_core()->rank;
  p.groups.per_sample = n.per_sample;
  p.groups.of_channel = groups_on(n, x, own);
  const bool whole = x == nullptr || groups_whole(n, *x);
  p.groups.groups = whole ? std::ssize(p.groups.of_channel) / channels_of_group(n) : n.groups;
  if (x == nullptr) return p;
  p.mask = mask_of(n, *x);
  if (p.mask != 0)
    for (const int r : group_ranks(*x, p.mask))
      add_counts(n, x->local_sizes(r), groups_on(n, x, r), p.groups.groups, p.counts);
  return p;
}

SpecPtr channel_statistics_spec(const ChannelNorm& n, const ShardSpec& x) {
  const Dims sizes = n.statistics_sizes();
  Placements placements(x.placements().size());
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  const auto follow = [&](int dim, const std::optional<DimCut>& cut) {
    if (!cut) return;
    for (const int a : cut->axes) placements[static_cast<std::size_t>(a)] = Shard(dim);
    cuts[static_cast<std::size_t>(dim)] = cut;
  };
  if (n.per_sample) follow(1, copied(x.cut(0)));
  if (x.cut(1) && groups_whole(n, x)) follow(sizes.size() - 1, divided(*x.cut(1), channels_of_group(n)));
  return ShardSpec::make(x.mesh(), placements, sizes, std::move(cuts));
}

SpecPtr channel_vector_spec(const ShardSpec& x) {
  Placements placements(x.placements().size());
  if (x.cut(1))
    for (const int a : x.cut(1)->axes) placements[static_cast<std::size_t>(a)] = Shard(0);
  return ShardSpec::make(x.mesh(), placements, {x.sizes()[1]}, {copied(x.cut(1))});
}

SpecPtr channel_gradient_spec(const ShardSpec& dy) {
  Placements placements = channel_vector_spec(dy)->placements();
  for (std::size_t a = 0; a < placements.size(); ++a)
    if (!placements[a].is_shard() && !dy.placements()[a].is_replicate()) placements[a] = Partial();
  return ShardSpec::make(dy.mesh(), placements, {dy.sizes()[1]}, {copied(dy.cut(1))});
}

namespace {

// Axes of the mesh around, for those of x's mesh in `mask`. A tensor on that mesh itself is the whole batch.
unsigned outer_mask(const ChannelNorm& n, unsigned mask, const ShardSpec* x) {
  const DeviceMesh& around = n.shared.mesh;
  TS_CHECK(n.shared.axis >= 0 && n.shared.axis < around.ndim(), n.op->name,
           "the batch is said to be shared out over axis {} of the mesh {}", n.shared.axis, around.str());
  unsigned outer = 1U << static_cast<unsigned>(n.shared.axis);
  if (x == nullptr) return outer;
  std::vector<std::string> names;
  bool inside = true;
  for (const MeshAxis& a : x->mesh().axes()) {
    names.push_back(a.name);
    inside = inside && around.has_axis(a.name) && around.axis(a.name) != n.shared.axis;
  }
  TS_CHECK(inside && around.submesh(names) == x->mesh(), n.op->name,
           "the input lives on the mesh {}, which is not that of other axes of {} than {}", x->mesh().str(),
           around.str(), around.axes()[static_cast<std::size_t>(n.shared.axis)].name);
  for (std::size_t a = 0; a < names.size(); ++a)
    if ((mask >> a & 1U) != 0) outer |= 1U << static_cast<unsigned>(around.axis(names[a]));
  return outer;
}

bool batch_is_shared(const ChannelNorm& n, const ShardSpec* x) {
  return n.shared.mesh.defined() && !n.per_sample && !n.given &&
         (x == nullptr || x->mesh_core() != n.shared.mesh.core());
}

}  // namespace

Communicator channel_group(const ChannelNorm& n, const ChannelPlan& plan, const ShardSpec* x) {
  if (n.given) return {};
  if (batch_is_shared(n, x)) return n.shared.mesh.group(outer_mask(n, plan.mask, x));
  return plan.mask == 0 ? Communicator() : x->mesh().group(plan.mask);
}

Communicator shared_group(const ChannelNorm& n, const ShardSpec* x) {
  return batch_is_shared(n, x) ? n.shared.mesh.group(outer_mask(n, 0, x)) : Communicator();
}

}  // namespace tessera
