// ShardSpec: exactly which part of a global tensor every rank holds.
//
// Per mesh axis one placement; per tensor dim the mesh axes that cut it (outermost first) and, for every
// joint coordinate on those axes, the ordered list of intervals it holds. A rank's local array is the
// concatenation, dim by dim, of its intervals. Usually a list has one interval; several arise when a cut
// inner dim is merged into an outer one (tokens of a map cut along longitude) or from balanced cuts. Any
// interval may be empty.
//
// The intervals of a dim tile [0, n) exactly once; this is checked when a spec is made. Every rank knows all
// of it, so nothing about shapes is ever asked for. Equal specs are one immutable object: compare pointers.
#pragma once
#include <memory>
#include <optional>

#include "mesh/device_mesh.h"
#include "mesh/placement.h"

namespace tessera {

using Intervals = std::vector<Interval>;

// How one tensor dim is cut.
struct DimCut {
  std::vector<int> axes;         // mesh axes, outermost first
  std::vector<Intervals> parts;  // per joint coordinate on `axes` (row-major)
  bool operator==(const DimCut&) const = default;
};
using CutPtr = std::shared_ptr<const DimCut>;  // null: the dim is whole

class ShardSpec;
using SpecPtr = std::shared_ptr<const ShardSpec>;

// The partition used wherever none is given: n = q·parts + r, the first r parts get q + 1.
Intervals default_partition(std::int64_t n, int parts);
// A cut from one length per joint coordinate, in order (they must sum to n).
DimCut cut_from_lengths(std::vector<int> axes, std::span<const std::int64_t> lengths);

class ShardSpec : public std::enable_shared_from_this<ShardSpec> {
 public:
  // Validates and interns. `cuts`: one entry per tensor dim, null where the dim is whole or (if an axis
  // shards it) to have the default partition; may be empty.
  static SpecPtr make(const DeviceMesh& mesh, Placements placements, const Dims& sizes,
                      std::vector<std::optional<DimCut>> cuts = {});
  // One list of lengths per mesh axis (empty: default, or the axis shards nothing), as scatter takes them.
  static SpecPtr from_lengths(const DeviceMesh& mesh, Placements placements, const Dims& sizes,
                              const std::vector<std::vector<std::int64_t>>& lengths);
  static SpecPtr replicated(const DeviceMesh& mesh, const Dims& sizes);

  DeviceMesh mesh() const;
  const std::shared_ptr<MeshCore>& mesh_core() const { return core_; }
  const Placements& placements() const { return placements_; }
  const Placement& placement(int axis) const { return placements_[static_cast<std::size_t>(axis)]; }
  const Dims& sizes() const { return sizes_; }
  int dim() const { return sizes_.size(); }
  const CutPtr& cut(int dim) const { return cuts_[static_cast<std::size_t>(dim)]; }
  bool is_replicated() const { return replicated_; }  // Replicate on every axis
  bool has_partial() const { return partial_mask_ != 0; }
  bool is_cut() const { return shard_mask_ != 0; }
  unsigned partial_mask() const { return partial_mask_; }
  unsigned shard_mask() const { return shard_mask_; }

  // What rank `rank` (mesh order) holds of a dim; the whole dim as one interval where it is not cut.
  const Intervals& intervals(int dim, int rank) const;
  const Intervals& intervals(int dim) const { return intervals(dim, rank_); }
  Dims local_sizes(int rank) const;
  const Dims& local_sizes() const { return local_sizes_; }
  // At most one interval per rank along the dim.
  bool single_interval(int dim) const;

  std::string str() const;

  ShardSpec(const DeviceMesh& mesh, Placements placements, const Dims& sizes, std::vector<CutPtr> cuts);

 private:
  std::shared_ptr<MeshCore> core_;
  std::weak_ptr<MeshCache> cache_;
  Placements placements_;
  Dims sizes_;
  std::vector<CutPtr> cuts_;
  std::vector<Intervals> whole_;  // per dim: {[0, n)}
  Dims local_sizes_;
  int rank_ = 0;
  unsigned partial_mask_ = 0;
  unsigned shard_mask_ = 0;
  bool replicated_ = true;
};

// The same tensor with other placements: dims keep their cuts where the axes that cut them stay the same.
SpecPtr with_placements(const ShardSpec& spec, const Placements& placements);
// `spec` with Partial axes turned into Replicate.
SpecPtr without_partial(const ShardSpec& spec);
SpecPtr keeping_sums(const ShardSpec& spec);  // Replicate where anything but a sum is owed
// The same intervals everywhere on every rank (placements of kind Partial and Replicate count as equal).
bool same_layout(const ShardSpec& a, const ShardSpec& b);

}  // namespace tessera
