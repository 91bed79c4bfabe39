#include "mesh/placement.h"

#include <fmt/core.h>

namespace tessera {

std::string Placement::str() const {
  switch (kind) {
    case PlacementKind::Replicate:
      return "Replicate";
    case PlacementKind::Shard:
      return fmt::format("Shard({})", dim);
    case PlacementKind::Partial:
      return fmt::format("Partial({})", name_of(op));
  }
  return "?";
}

std::string str(const Placements& placements) {
  std::string s = "(";
  for (const Placement& p : placements) s += (s.size() == 1 ? "" : ", ") + p.str();
  return s + ")";
}

}  // namespace tessera
