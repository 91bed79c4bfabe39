// Placements: what a mesh axis does to a tensor (DTensor's words).
#pragma once
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace tessera {

enum class PlacementKind : std::uint8_t { Replicate, Shard, Partial };

struct Placement {
  PlacementKind kind = PlacementKind::Replicate;
  int dim = 0;  // Shard: the tensor dim that the axis cuts (may be negative until a spec is made)
  ReduceOp op = ReduceOp::Sum;  // Partial: how the ranks' terms make the value

  bool is_shard() const { return kind == PlacementKind::Shard; }
  bool is_replicate() const { return kind == PlacementKind::Replicate; }
  bool is_partial() const { return kind == PlacementKind::Partial; }
  bool operator==(const Placement& o) const {
    return kind == o.kind && (kind != PlacementKind::Shard || dim == o.dim) &&
           (kind != PlacementKind::Partial || op == o.op);
  }
  std::string str() const;  // "Shard(2)", "Replicate", "Partial(sum)"
};
using Placements = std::vector<Placement>;  // one per mesh axis

inline Placement Shard(int dim) { return {PlacementKind::Shard, dim, ReduceOp::Sum}; }             // NOLINT
inline Placement Replicate() { return {}; }                                                        // NOLINT
inline Placement Partial(ReduceOp op = ReduceOp::Sum) { return {PlacementKind::Partial, 0, op}; }  // NOLINT
std::string str(const Placements& placements);

}  // namespace tessera
