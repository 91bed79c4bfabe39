#include "verify/program_table.h"

namespace tessera::verify {

void add_points(OpTable& t) {
  t["knn"] = [](const Call& c) -> Tensors {
    const NearestNeighbors found = knn(c.in(0), c.in(1), c.integer("k"));
    return {found.distances, found.indices};
  };
  t["radius_search"] = [](const Call& c) -> Tensors {
    const auto radius = c.get<double>("radius");
    if (c.has("max_neighbors")) {
      const RadiusNeighbors found = radius_search(c.in(0), c.in(1), radius, c.integer("max_neighbors"));
      return {found.distances, found.indices, found.counts};
    }
    const NeighborLists found = radius_search(c.in(0), c.in(1), radius);
    return {found.distances, found.indices, found.counts, found.offsets, found.rows};
  };
}

}  // namespace tessera::verify
