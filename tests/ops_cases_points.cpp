#include "tests/ops_cases.h"

// Neighbours in point clouds. Kinks (two neighbours equally far, one at the radius) keep finite differences
// away; points_gradient_test.cpp has clouds without them.
namespace tessera::ops_cases {
namespace {

using namespace mesh_cases;

struct Sizes {
  Dims points;
  Dims queries;
  InputKind kind = InputKind::Any;

  std::vector<InputSpec> inputs() const { return {{points, kind}, {queries, kind}}; }
  std::string str() const { return points.str() + " " + queries.str(); }
};
// In one dim the second derivative of a distance is the difference of terms that grow as points come near
// each other: there they lie at steps.
Sizes some_clouds(Random& random) {
  const std::int64_t dims = random_int(random, 1, 4);
  return {{random_int(random, 1, 12), dims},
          {random_int(random, 0, 9), dims},
          chance(random, 40) || dims == 1 ? InputKind::Steps : InputKind::Any};
}

OpCase draw_knn(Random& random) {
  const Sizes s = some_clouds(random);
  const std::int64_t k = random_int(random, 1, s.points[0]);
  return {fmt::format("knn {} k {}", s.str(), k), s.inputs(),
          [k](const Tensors& in) {
            const NearestNeighbors found = knn(in[0], in[1], k);
            return Tensors{found.distances, found.indices};
          },
          false};
}

OpCase draw_radius(Random& random) {
  const Sizes s = some_clouds(random);
  const double radius = 0.25 * static_cast<double>(random_int(random, 0, 12));
  const std::int64_t most = random_int(random, 1, 6);
  return {fmt::format("radius_search {} radius {} at most {}", s.str(), radius, most), s.inputs(),
          [=](const Tensors& in) {
            const RadiusNeighbors found = radius_search(in[0], in[1], radius, most);
            return Tensors{found.distances, found.indices, found.counts};
          },
          false};
}

OpCase draw_lists(Random& random) {
  const Sizes s = some_clouds(random);
  const double radius = 0.25 * static_cast<double>(random_int(random, 0, 12));
  return {fmt::format("radius_search {} radius {}", s.str(), radius), s.inputs(),
          [=](const Tensors& in) {
            const NeighborLists found = radius_search(in[0], in[1], radius);
            return Tensors{found.distances, found.indices, found.counts, found.offsets, found.rows};
          },
          false};
}

}  // namespace

void add_points(std::vector<OpFamily>& list) {
  list.push_back({"knn", draw_knn});
  list.push_back({"radius_search", draw_radius});
  list.push_back({"radius_lists", draw_lists});
}

}  // namespace tessera::ops_cases
