#include "mesh/spec.h"

#include "mesh/intervals.h"
#include "mesh/mesh_state.h"
#include "runtime/error.h"

namespace tessera {
namespace {

int product_of_axes(const MeshCore& core, const std::vector<int>& axes) {
  int p = 1;
  for (int a : axes) p *= core.axes[static_cast<std::size_t>(a)].size;
  return p;
}

int joint_coordinate(const MeshCore& core, const std::vector<int>& axes, int rank) {
  int c = 0;
  for (int a : axes) c = c * core.axes[static_cast<std::size_t>(a)].size + core.coordinate(a, rank);
  return c;
}

// Drops empty intervals and joins neighbours, so that equal cuts have one form.
Intervals normalised(const Intervals& list) {
  Intervals out;
  for (Interval i : list) {
    if (i.empty()) continue;
    if (!out.empty() && out.back().hi == i.lo) {
      out.back().hi = i.hi;
    } else {
      out.push_back(i);
    }
  }
  return out;
}

// Names of the axes that cut one dim, where several do: the order tells which is the finer cut.
std::string nesting_str(const MeshCore& core, const std::vector<int>& axes) {
  std::string s;
  if (axes.size() < 2) return s;
  for (int a : axes) s += (s.empty() ? " by " : ", then ") + core.axes[static_cast<std::size_t>(a)].name;
  return s + ":";
}

std::string list_str(const std::vector<Intervals>& parts) {
  std::string s;
  for (const Intervals& part : parts) {
    s += s.empty() ? "" : " ";
    if (part.empty()) s += "-";
    for (std::size_t i = 0; i < std::min<std::size_t>(part.size(), 3); ++i)
      s += fmt::format("{}[{},{})", i == 0 ? "" : "+", part[i].lo, part[i].hi);
    if (part.size() > 3) s += "+…";
  }
  return s;
}

void check_tiles(int dim, std::int64_t n, const DimCut& cut) {
  std::vector<Interval> all;
  for (const Intervals& part : cut.parts)
    for (Interval i : part)
      if (i.lo != i.hi) all.push_back(i);
  std::sort(all.begin(), all.end(), [](Interval a, Interval b) { return a.lo < b.lo; });
  std::int64_t at = 0;
  bool ok = true;
  for (Interval i : all) {
    ok = ok && i.lo == at && i.hi > i.lo;
    at = i.hi;
  }
  TS_CHECK(ok && at == n, "ShardSpec", "the intervals of dim {} must tile [0, {}) exactly once, given {}",
           dim, n, list_str(cut.parts));
}

std::size_t hash_of(const Placements& placements, const Dims& sizes, const std::vector<CutPtr>& cuts) {
  std::size_t h = sizes.hash();
  for (const Placement& p : placements) {
    hash_combine(h, static_cast<std::size_t>(p.kind));
    hash_combine(h, p.is_shard() ? static_cast<std::size_t>(p.dim) : static_cast<std::size_t>(p.op));
  }
  for (const CutPtr& cut : cuts) {
    if (!cut) continue;
    for (int a : cut->axes) hash_combine(h, static_cast<std::size_t>(a));
    for (const Intervals& part : cut->parts) {
      hash_combine(h, part.size());
      for (Interval i : part) hash_combine(h, static_cast<std::size_t>(i.lo * 1000003 + i.hi));
    }
  }
  return h;
}

bool same_cuts(const std::vector<CutPtr>& a, const std::vector<CutPtr>& b) {
  for (std::size_t d = 0; d < a.size(); ++d) {
    if (a[d] == b[d]) continue;
    if (!a[d] || !b[d] || !(*a[d] == *b[d])) return false;
  }
  return true;
}

SpecPtr intern(const DeviceMesh& mesh, Placements placements, const Dims& sizes, std::vector<CutPtr> cuts) {
  MeshCache& cache = *mesh.cache();
  const std::size_t h = hash_of(placements, sizes, cuts);
  auto [first, last] = cache.specs.equal_range(h);
  for (auto it = first; it != last; ++it) {
    SpecPtr s = it->second.lock();
    if (!s || !(s->sizes() == sizes) || !(s->placements() == placements)) continue;
    std::vector<CutPtr> theirs;
    theirs.reserve(static_cast<std::size_t>(s->dim()));
    for (int d = 0; d < s->dim(); ++d) theirs.push_back(s->cut(d));
    if (same_cuts(theirs, cuts)) return s;
  }
  if (cache.specs.size() > cache.sweep_at) {  // forget the dead ones, so that many shapes leave memory flat
    std::erase_if(cache.specs, [](const auto& e) { return e.second.expired(); });
    cache.sweep_at = std::max<std::size_t>(1024, 2 * cache.specs.size());
  }
  auto spec = std::make_shared<const ShardSpec>(mesh, std::move(placements), sizes, std::move(cuts));
  cache.specs.emplace(h, spec);
  return spec;
}

// The mesh axes that shard each dim, in mesh order.
std::vector<std::vector<int>> axes_by_dim(const DeviceMesh& mesh, Placements& placements, const Dims& sizes) {
  TS_CHECK(static_cast<int>(placements.size()) == mesh.ndim(), "ShardSpec",
           "{} placements given, the mesh {} has {} axes", placements.size(), mesh.str(), mesh.ndim());
  for (int d = 0; d < sizes.size(); ++d)
    TS_CHECK(sizes[d] >= 0, "ShardSpec", "dim {} has size {} in {}, at least 0 is needed", d, sizes[d],
             sizes.str());
  std::vector<std::vector<int>> by_dim(static_cast<std::size_t>(sizes.size()));
  for (int a = 0; a < mesh.ndim(); ++a) {
    Placement& p = placements[static_cast<std::size_t>(a)];
    if (!p.is_shard()) continue;
    const int d = p.dim < 0 ? p.dim + sizes.size() : p.dim;
    TS_CHECK(d >= 0 && d < sizes.size(), "ShardSpec", "Shard({}) of a tensor of {} dims {}", p.dim,
             sizes.size(), sizes.str());
    p.dim = d;
    by_dim[static_cast<std::size_t>(d)].push_back(a);
  }
  return by_dim;
}

}  // namespace

Intervals default_partition(std::int64_t n, int parts) {
  Intervals list;
  std::int64_t at = 0;
  for (int i = 0; i < parts; ++i) {
    const std::int64_t length = n / parts + (i < n % parts ? 1 : 0);
    list.push_back({at, at + length});
    at += length;
  }
  return list;
}

DimCut cut_from_lengths(std::vector<int> axes, std::span<const std::int64_t> lengths) {
  DimCut cut;
  cut.axes = std::move(axes);
  std::int64_t at = 0;
  for (std::int64_t length : lengths) {
    TS_CHECK(length >= 0, "ShardSpec", "a shard of length {} was given, at least 0 is needed", length);
    cut.parts.push_back({{at, at + length}});
    at += length;
  }
  return cut;
}

SpecPtr ShardSpec::make(const DeviceMesh& mesh, Placements placements, const Dims& sizes,
                        std::vector<std::optional<DimCut>> cuts) {
  TS_CHECK(mesh.defined(), "ShardSpec", "the mesh is undefined");
  std::vector<std::vector<int>> by_dim = axes_by_dim(mesh, placements, sizes);
  cuts.resize(static_cast<std::size_t>(sizes.size()));
  std::vector<CutPtr> final_cuts(static_cast<std::size_t>(sizes.size()));
  for (int d = 0; d < sizes.size(); ++d) {
    const std::vector<int>& axes = by_dim[static_cast<std::size_t>(d)];
    std::optional<DimCut>& given = cuts[static_cast<std::size_t>(d)];
    if (axes.empty()) {
      TS_CHECK(!given, "ShardSpec", "dim {} has cut points but no axis of {} shards it", d,
               tessera::str(placements));
      continue;
    }
    const int parts = product_of_axes(*mesh.core(), axes);
    if (!given) {
      given.emplace();
      given->axes = axes;
      for (Interval i : default_partition(sizes[d], parts)) given->parts.push_back({i});
    }
    std::vector<int> sorted = given->axes;
    std::sort(sorted.begin(), sorted.end());
    TS_CHECK(sorted == axes, "ShardSpec", "the cut of dim {} names other mesh axes than the placements {}", d,
             tessera::str(placements));
    TS_CHECK(static_cast<int>(given->parts.size()) == parts, "ShardSpec",
             "dim {} is cut into {} parts, its mesh axes have {} ranks", d, given->parts.size(), parts);
    check_tiles(d, sizes[d], *given);
    auto cut = std::make_shared<DimCut>(*given);
    for (Intervals& part : cut->parts) part = normalised(part);
    final_cuts[static_cast<std::size_t>(d)] = std::move(cut);
  }
  return intern(mesh, std::move(placements), sizes, std::move(final_cuts));
}

namespace {

// Lengths that would count for nothing are a mistake of the caller.
void check_lengths(const DeviceMesh& mesh, const Placements& placements,
                   const std::vector<std::vector<std::int64_t>>& lengths) {
  TS_CHECK(static_cast<int>(lengths.size()) <= mesh.ndim(), "ShardSpec",
           "{} lists of lengths given, the mesh {} has {} axes", lengths.size(), mesh.str(), mesh.ndim());
  for (std::size_t a = 0; a < lengths.size(); ++a)
    TS_CHECK(lengths[a].empty() || placements[a].is_shard(), "ShardSpec",
             "{} lengths given for mesh axis {} of {}, which is {}; only what is sharded has lengths",
             lengths[a].size(), a, mesh.str(), placements[a].str());
}

}  // namespace

SpecPtr ShardSpec::from_lengths(const DeviceMesh& mesh, Placements placements, const Dims& sizes,
                                const std::vector<std::vector<std::int64_t>>& lengths) {
  TS_CHECK(mesh.defined(), "ShardSpec", "the mesh is undefined");
  std::vector<std::vector<int>> by_dim = axes_by_dim(mesh, placements, sizes);
  check_lengths(mesh, placements, lengths);
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(sizes.size()));
  for (int d = 0; d < sizes.size(); ++d) {
    const std::vector<int>& axes = by_dim[static_cast<std::size_t>(d)];
    std::vector<std::int64_t> joint;
    for (int a : axes)
      if (static_cast<std::size_t>(a) < lengths.size() && !lengths[static_cast<std::size_t>(a)].empty())
        joint = lengths[static_cast<std::size_t>(a)];
    if (joint.empty()) continue;
    std::int64_t sum = 0;
    for (std::int64_t l : joint) sum += l;
    TS_CHECK(
        static_cast<int>(joint.size()) == product_of_axes(*mesh.core(), axes) && sum == sizes[d], "ShardSpec",
        "dim {} of size {} is cut into {} lengths that sum to {}; {} lengths that sum to the size are needed",
        d, sizes[d], joint.size(), sum, product_of_axes(*mesh.core(), axes));
    cuts[static_cast<std::size_t>(d)] = cut_from_lengths(axes, joint);
  }
  return make(mesh, std::move(placements), sizes, std::move(cuts));
}

SpecPtr ShardSpec::replicated(const DeviceMesh& mesh, const Dims& sizes) {
  return intern(mesh, Placements(static_cast<std::size_t>(mesh.ndim())), sizes,
                std::vector<CutPtr>(static_cast<std::size_t>(sizes.size())));
}

ShardSpec::ShardSpec(const DeviceMesh& mesh, Placements placements, const Dims& sizes,
                     std::vector<CutPtr> cuts)
    : core_(mesh.core()),
      cache_(mesh.cache()),
      placements_(std::move(placements)),
      sizes_(sizes),
      cuts_(std::move(cuts)),
      rank_(mesh.rank()) {
  for (int d = 0; d < sizes.size(); ++d) whole_.push_back({{0, sizes[d]}});
  for (std::size_t a = 0; a < placements_.size(); ++a) {
    if (placements_[a].is_partial()) partial_mask_ |= 1U << a;
    if (placements_[a].is_shard()) shard_mask_ |= 1U << a;
  }
  replicated_ = partial_mask_ == 0 && shard_mask_ == 0;
  local_sizes_ = local_sizes(rank_);
}

DeviceMesh ShardSpec::mesh() const {
  std::shared_ptr<MeshCache> cache = cache_.lock();
  return {core_, cache ? cache : std::make_shared<MeshCache>()};
}

const Intervals& ShardSpec::intervals(int dim, int rank) const {
  const CutPtr& cut = cuts_[static_cast<std::size_t>(dim)];
  if (!cut) return whole_[static_cast<std::size_t>(dim)];
  return cut->parts[static_cast<std::size_t>(joint_coordinate(*core_, cut->axes, rank))];
}

Dims ShardSpec::local_sizes(int rank) const {
  Dims sizes = sizes_;
  for (int d = 0; d < sizes.size(); ++d) {
    if (!cuts_[static_cast<std::size_t>(d)]) continue;
    sizes[d] = total_length(intervals(d, rank));
  }
  return sizes;
}

bool ShardSpec::single_interval(int dim) const {
  const CutPtr& cut = cuts_[static_cast<std::size_t>(dim)];
  return !cut ||
         std::all_of(cut->parts.begin(), cut->parts.end(), [](const Intervals& p) { return p.size() <= 1; });
}

std::string ShardSpec::str() const {
  std::string s =
      fmt::format("{} on {}: {}", sizes_.str(), DeviceMesh(core_, nullptr).str(), tessera::str(placements_));
  for (int d = 0; d < dim(); ++d)
    if (cut(d))
      s += fmt::format(", dim {} cut{} {}", d, nesting_str(*core_, cut(d)->axes), list_str(cut(d)->parts));
  return s;
}

SpecPtr with_placements(const ShardSpec& spec, const Placements& placements) {
  const DeviceMesh mesh = spec.mesh();
  Placements wanted = placements;
  std::vector<std::vector<int>> by_dim = axes_by_dim(mesh, wanted, spec.sizes());
  std::vector<std::optional<DimCut>> cuts(static_cast<std::size_t>(spec.dim()));
  for (int d = 0; d < spec.dim(); ++d) {
    if (!spec.cut(d)) continue;
    std::vector<int> sorted = spec.cut(d)->axes;
    std::sort(sorted.begin(), sorted.end());
    if (sorted == by_dim[static_cast<std::size_t>(d)]) cuts[static_cast<std::size_t>(d)] = *spec.cut(d);
  }
  return ShardSpec::make(mesh, wanted, spec.sizes(), std::move(cuts));
}

SpecPtr without_partial(const ShardSpec& spec) {
  if (!spec.has_partial()) return spec.shared_from_this();
  Placements p = spec.placements();
  for (Placement& q : p)
    if (q.is_partial()) q = Replicate();
  return with_placements(spec, p);
}

SpecPtr keeping_sums(const ShardSpec& spec) {
  Placements p = spec.placements();
  for (Placement& q : p)
    if (q.is_partial() && q.op != ReduceOp::Sum) q = Replicate();
  return with_placements(spec, p);
}

bool same_layout(const ShardSpec& a, const ShardSpec& b) {
  if (&a == &b) return true;
  if (a.mesh_core() != b.mesh_core() || !(a.sizes() == b.sizes())) return false;
  for (int d = 0; d < a.dim(); ++d) {
    if (a.cut(d) == b.cut(d)) continue;
    if (!a.cut(d) || !b.cut(d) || !(*a.cut(d) == *b.cut(d))) return false;
  }
  return true;
}

}  // namespace tessera
