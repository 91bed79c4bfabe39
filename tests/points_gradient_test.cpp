// Gradients of distances: finite differences of first and second order, one rank and many, and where there is
// no direction.
#include <catch2/catch.hpp>

#include "autograd/gradcheck.h"
#include "tests/points_cases.h"

using namespace tessera;
using namespace tessera::points_cases;

namespace {

// No two distances of a query, and none and the radius, closer than finite differences can bear.
bool well_apart(const Cloud& points, const Cloud& queries, double radius) {
  constexpr double kApart = 1e-4;
  for (std::int64_t q = 0; q < queries.rows; ++q) {
    double before = 0;
    for (const Found& f : all_points<double>(points, queries, q)) {
      if (f.distance - before < kApart || std::abs(f.distance - radius) < kApart) return false;
      before = f.distance;
    }
  }
  return true;
}

struct Pair {
  Cloud points;
  Cloud queries;
};
Pair draw(Random& random, double radius) {
  while (true) {
    const std::int64_t dims = random_int(random, 2, 4);
    Pair p{random_cloud(random, random_int(random, 2, 9), dims, Kind::Uniform),
           random_cloud(random, random_int(random, 1, 7), dims, Kind::Uniform)};
    if (well_apart(p.points, p.queries, radius)) return p;
  }
}

Tensor real(const Tensor& distances, const Tensor& indices) {
  return where(ge(indices, full({}, 0, DType::I64)), distances, full({}, 0, DType::F64));
}

void check_gradients(Random& random, const DeviceMesh& mesh, const Pair& p, int form, double radius) {
  Tensor points = placed_anyhow(random, mesh, p.points, DType::F64);
  Tensor queries = placed_anyhow(random, mesh, p.queries, DType::F64);
  points.set_requires_grad();
  queries.set_requires_grad(form != 3);
  const auto f = [&](const Tensors& in) -> Tensors {
    if (form == 0) return {knn(in[0], in[1], std::min<std::int64_t>(3, p.points.rows)).distances};
    if (form == 1) {
      const RadiusNeighbors found = radius_search(in[0], in[1], radius, 3);
      return {real(found.distances, found.indices)};
    }
    return {radius_search(in[0], in[1], radius).distances};
  };
  const auto where_is = [](const Tensor& t) { return t.is_sharded() ? t.spec()->str() : "plain"; };
  INFO("form " << form << "\n  " << where_is(points) << "\n  " << where_is(queries));
  const GradcheckResult result = gradcheck(f, {points, queries}, {.tolerance = 1e-5, .second = true});
  INFO(result.message);
  CHECK(result.ok);
}

}  // namespace

TEST_CASE("gradients of distances agree with finite differences, twice", "[points]") {
  auto random = test_random(910);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(12); ++trial)
    check_gradients(random, pick(random, meshes), draw(random, 0.55), trial % 4, 0.55);
}

TEST_CASE("gradients of distances are those of one rank", "[points]") {
  auto random = test_random(911);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(20); ++trial) {
    const DeviceMesh& mesh = pick(random, meshes);
    const DType dtype = chance(random, 50) ? DType::F32 : DType::F64;
    const auto kind = chance(random, 50) ? Kind::Uniform : Kind::Grid;  // ties, and points upon queries
    const Cloud points = random_cloud(random, random_int(random, 5, 80), 3, kind);
    const Cloud queries = random_cloud(random, random_int(random, 0, 60), 3, kind);
    const bool lists = chance(random, 30);
    const auto gradients = [&](Tensor p, Tensor q) {
      p.set_requires_grad();
      q.set_requires_grad();
      const Tensor d = lists ? radius_search(p, q, 0.5).distances : knn(p, q, 5).distances;
      Generator generator(17);
      d.backward(randn(d.sizes(), generator, dtype));
      return std::pair{p.grad().to_vector(), q.grad().to_vector()};
    };
    const auto [want_p, want_q] = gradients(placed(points, nullptr, dtype), placed(queries, nullptr, dtype));
    const Tensor p = placed_anyhow(random, mesh, points, dtype);
    const Tensor q = placed_anyhow(random, mesh, queries, dtype);
    const auto [got_p, got_q] = gradients(p, q);
    const double tolerance = dtype == DType::F64 ? 1e-13 : 2e-5;
    double worst = 0;
    for (std::size_t i = 0; i < want_p.size(); ++i) worst = std::max(worst, std::abs(got_p[i] - want_p[i]));
    for (std::size_t i = 0; i < want_q.size(); ++i) worst = std::max(worst, std::abs(got_q[i] - want_q[i]));
    INFO((p.is_sharded() ? p.spec()->str() : "plain") << "\n"
                                                      << (q.is_sharded() ? q.spec()->str() : "plain"));
    CHECK(worst <= tolerance);
  }
}

TEST_CASE("a point upon its query has no direction: all gradients are 0", "[points]") {
  const DeviceMesh mesh = all_meshes().front();
  const Cloud cloud{4, 2, {0, 0, 1, 0, 0, 2, 1e-200, 5}};
  Tensor p = placed(cloud, ShardSpec::make(mesh, {Shard(0)}, {4, 2}), DType::F64);
  p.set_requires_grad();
  const Tensor own = knn(p, p.detach(), 1).distances;
  const Tensors first = grad({own}, {p}, {ones_like(own)}, {.create_graph = true});
  CHECK(first[0].to_vector() == std::vector<double>(8, 0.0));
  const Tensors second = grad({first[0]}, {p}, {ones_like(first[0])});
  if (second[0].defined()) CHECK(second[0].to_vector() == std::vector<double>(8, 0.0));
  // A square that vanishes: the distance is 0, and so is the gradient.
  const Cloud tiny{1, 2, {1e-200, 0}};
  p.zero_grad();
  sum(knn(p, placed(tiny, nullptr, DType::F64), 1).distances).backward();
  CHECK(p.grad().to_vector() == std::vector<double>(8, 0.0));
}

TEST_CASE("entries that are no neighbours have no gradient, whatever comes back to them", "[points]") {
  const DeviceMesh mesh = all_meshes().front();
  const Cloud cloud{3, 1, {0, 1, 10}};
  Tensor p = placed(cloud, ShardSpec::make(mesh, {Shard(0)}, {3, 1}), DType::F64);
  p.set_requires_grad();
  const Cloud query{1, 1, {3}};
  const RadiusNeighbors found = radius_search(p, placed(query, nullptr, DType::F64), 2.5, 3);
  CHECK(found.counts.item() == 1);
  sum(square(found.distances)).backward();  // 2 · infinity comes back to the empty entries
  CHECK(p.grad().to_vector() == std::vector<double>{0, -4, 0});
}

TEST_CASE("bfloat16: gradients are summed in float32 and rounded once", "[points]") {
  const DeviceMesh mesh = all_meshes().front();
  std::vector<double> values{0};
  for (int i = 0; i < 300; ++i) values.push_back(1);
  Cloud points{1, 1, {0}};
  Cloud queries{301, 1, values};
  Tensor p = placed(points, nullptr, DType::BF16);
  p.set_requires_grad();
  const Tensor q = placed(queries, ShardSpec::make(mesh, {Shard(0)}, {301, 1}), DType::BF16);
  const Tensor d = knn(p, q, 1).distances;
  CHECK(d.dtype() == DType::BF16);
  d.backward(ones_like(d));
  CHECK(p.grad().dtype() == DType::BF16);
  // Terms of -1 in bfloat16 alone would stop at -256. What ranks owe each other is rounded rank by rank.
  CHECK(p.grad().to_vector()[0] == Approx(-300).epsilon(0.01));
}
