// Neighbours in point clouds against comparing all with all: the same bits for every placement.
#include <catch2/catch.hpp>

#include "tests/points_cases.h"

using namespace tessera;
using namespace tessera::points_cases;

namespace {

std::string text_of(const Cloud& points, const Cloud& queries, const Tensor& p, const Tensor& q, Kind kind) {
  const auto where = [](const Tensor& t) { return t.is_sharded() ? t.spec()->str() : "plain"; };
  return fmt::format("{} points, {} queries, {} dims, kind {}, {}\n  {}\n  {}", points.rows, queries.rows,
                     points.dims, static_cast<int>(kind), name_of(p.dtype()), where(p), where(q));
}

std::vector<std::int64_t> integers(const Tensor& t) {
  std::vector<std::int64_t> list;
  for (const double v : t.to_vector()) list.push_back(static_cast<std::int64_t>(v));
  return list;
}

struct Problem {
  Kind kind = Kind::Uniform;
  DType dtype = DType::F32;
  Cloud points;
  Cloud queries;
  Tensor p;
  Tensor q;
  std::string text() const { return text_of(points, queries, p, q, kind); }
};

Problem draw(Random& random, const DeviceMesh& mesh, std::int64_t least_points) {
  Problem c;
  c.kind = static_cast<Kind>(random_int(random, 0, 4));
  c.dtype = pick(random, std::vector<DType>{DType::F32, DType::F32, DType::F64, DType::BF16});
  const std::int64_t dims = random_int(random, 1, chance(random, 20) ? 8 : 3);
  const std::int64_t most = chance(random, 20) ? 400 : 60;
  const std::int64_t rows = std::max(least_points, random_int(random, 0, most));
  c.points = random_cloud(random, rows, dims, c.kind, c.dtype);
  const Kind queries = chance(random, 70) ? c.kind : Kind::Uniform;
  c.queries = random_cloud(random, random_int(random, 0, most), dims, queries, c.dtype);
  c.p = placed_anyhow(random, mesh, c.points, c.dtype, c.kind == Kind::Grid);
  c.q = placed_anyhow(random, mesh, c.queries, c.dtype, queries == Kind::Grid);
  return c;
}

}  // namespace

TEST_CASE("k nearest neighbours are those of comparing all with all", "[points]") {
  auto random = test_random(900);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(60); ++trial) {
    const Problem c = draw(random, pick(random, meshes), 1);
    const std::int64_t k = std::min(c.points.rows, random_int(random, 1, chance(random, 20) ? 70 : 8));
    INFO(c.text() << "\n  k " << k);
    const NearestNeighbors found = knn(c.p, c.q, k);
    REQUIRE(found.distances.sizes() == Dims{c.queries.rows, k});
    REQUIRE(found.indices.dtype() == DType::I64);
    REQUIRE(found.distances.dtype() == c.dtype);
    const std::vector<double> distances = found.distances.to_vector();
    const std::vector<std::int64_t> indices = integers(found.indices);
    std::size_t wrong = 0;
    for (std::int64_t q = 0; q < c.queries.rows; ++q) {
      const std::vector<Found> expected = all_points(c.points, c.queries, q, c.dtype);
      for (std::int64_t j = 0; j < k; ++j) {
        const auto at = static_cast<std::size_t>(q * k + j);
        const Found& e = expected[static_cast<std::size_t>(j)];
        if (distances[at] != rounded(e.distance, c.dtype) || indices[at] != e.index) ++wrong;
      }
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("a fixed number of neighbours within a radius", "[points]") {
  auto random = test_random(901);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(60); ++trial) {
    const Problem c = draw(random, pick(random, meshes), 0);
    const std::int64_t most = random_int(random, 1, 9);
    const double radius = pick(random, std::vector<double>{0, 0.1, 0.3, 1, 1.5, 200, HUGE_VAL});
    INFO(c.text() << "\n  radius " << radius << ", at most " << most);
    const RadiusNeighbors found = radius_search(c.p, c.q, radius, most);
    const std::vector<double> distances = found.distances.to_vector();
    const std::vector<std::int64_t> indices = integers(found.indices);
    const std::vector<std::int64_t> counts = integers(found.counts);
    const double limit = c.dtype == DType::F64 ? radius : static_cast<double>(static_cast<float>(radius));
    std::size_t wrong = 0;
    for (std::int64_t q = 0; q < c.queries.rows; ++q) {
      const std::vector<Found> expected =
          within(all_points(c.points, c.queries, q, c.dtype), limit, static_cast<std::size_t>(most));
      if (counts[static_cast<std::size_t>(q)] != static_cast<std::int64_t>(expected.size())) ++wrong;
      for (std::int64_t j = 0; j < most; ++j) {
        const auto at = static_cast<std::size_t>(q * most + j);
        const bool filled = static_cast<std::size_t>(j) < expected.size();
        const Found e = filled ? expected[static_cast<std::size_t>(j)] : Found{HUGE_VAL, -1};
        if (distances[at] != rounded(e.distance, c.dtype) || indices[at] != e.index) ++wrong;
      }
    }
    REQUIRE(wrong == 0);
  }
}

TEST_CASE("all neighbours within a radius, as lists", "[points]") {
  auto random = test_random(902);
  const std::vector<DeviceMesh> meshes = all_meshes();
  for (int trial = 0; trial < trials(60); ++trial) {
    const Problem c = draw(random, pick(random, meshes), 0);
    const double radius = pick(random, std::vector<double>{0, 0.1, 0.3, 1, 1.5, HUGE_VAL});
    INFO(c.text() << "\n  radius " << radius);
    const NeighborLists found = radius_search(c.p, c.q, radius);
    const std::vector<std::int64_t> counts = integers(found.counts);
    const std::vector<std::int64_t> offsets = integers(found.offsets);
    const double limit = c.dtype == DType::F64 ? radius : static_cast<double>(static_cast<float>(radius));
    std::vector<double> distances;
    std::vector<std::int64_t> indices;
    std::vector<std::int64_t> rows;
    for (std::int64_t q = 0; q < c.queries.rows; ++q) {
      const auto at = static_cast<std::size_t>(q);
      REQUIRE(offsets[at] == static_cast<std::int64_t>(indices.size()));
      for (const Found& e : within(all_points(c.points, c.queries, q, c.dtype), limit)) {
        distances.push_back(rounded(e.distance, c.dtype));
        indices.push_back(e.index);
        rows.push_back(q);
      }
      REQUIRE(counts[at] == static_cast<std::int64_t>(indices.size()) - offsets[at]);
    }
    REQUIRE(integers(found.indices) == indices);
    REQUIRE(found.distances.to_vector() == distances);
    REQUIRE(integers(found.rows) == rows);
    if (!found.counts.is_sharded()) continue;
    // Locally: the lists of the local queries, as the local counts tell.
    std::vector<double> local;
    for (const Interval i : found.counts.spec()->intervals(0))
      for (std::int64_t q = i.lo; q < i.hi; ++q)
        local.insert(local.end(), static_cast<std::size_t>(counts[static_cast<std::size_t>(q)]),
                     static_cast<double>(q));
    REQUIRE(found.rows.local().to_vector() == local);
    REQUIRE(found.indices.local().numel() == static_cast<std::int64_t>(local.size()));
  }
}

TEST_CASE("results are cut like the queries", "[points]") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  auto random = test_random(903);
  const Cloud points = random_cloud(random, 40, 3, Kind::Uniform);
  const Cloud queries = random_cloud(random, 23, 3, Kind::Uniform);
  const SpecPtr cut =
      ShardSpec::make(mesh, {Shard(0)}, {23, 3}, {random_cut(random, {0}, 23, world.size()), {}});
  const Tensor plain = placed(points, nullptr, DType::F32);
  const Tensor rows = placed(points, ShardSpec::make(mesh, {Shard(0)}, {40, 3}), DType::F32);
  for (const Tensor& p : {plain, rows}) {
    const NearestNeighbors found = knn(p, placed(queries, cut, DType::F32), 5);
    CHECK(found.indices.spec()->intervals(0) == cut->intervals(0));
    CHECK(found.distances.spec() == found.indices.spec());
  }
  // Queries that all ranks have beside points that they share: the rows are shared out.
  const NearestNeighbors shared = knn(rows, placed(queries, nullptr, DType::F32), 5);
  CHECK(shared.indices.spec() == ShardSpec::make(mesh, {Shard(0)}, {23, 5}));
  CHECK_FALSE(knn(plain, placed(queries, nullptr, DType::F32), 5).indices.is_sharded());
}

TEST_CASE("what is wrong with a search is said alike on all ranks", "[points]") {
  const Communicator world = test_world();
  const DeviceMesh mesh(world, {{"domain", world.size()}});
  const auto make = [&](const Dims& sizes, DType dtype = DType::F32) {
    return Tensor(Array::zeros(ShardSpec::make(mesh, {Shard(0)}, sizes)->local_sizes(), dtype),
                  ShardSpec::make(mesh, {Shard(0)}, sizes));
  };
  const Tensor p = make({7, 3});
  const Tensor q = make({5, 3});
  const auto refused = [&](auto f) {
    const std::string text = refusal(f);
    CHECK(same_everywhere(text));
    return text;
  };
  CHECK(refused([&] { knn(p, q, 0); }) == "knn: k = 0 was given for 7 points; 1 to 7 is allowed");
  CHECK(refused([&] { knn(p, q, 8); }) == "knn: k = 8 was given for 7 points; 1 to 7 is allowed");
  CHECK(contains(refused([&] { knn(make({0, 3}), q, 1); }), "k = 1 was given for 0 points"));
  CHECK(contains(refused([&] { knn(p, make({5, 2}), 1); }), "differ in their dims"));
  CHECK(contains(refused([&] { knn(p, make({5}), 1); }), "[rows, dims] with 1 to 8 dims is needed"));
  CHECK(contains(refused([&] { knn(make({4, 9}), make({4, 9}), 1); }), "1 to 8 dims is needed"));
  CHECK(contains(refused([&] { knn(p, make({5, 3}, DType::F64), 1); }), "points are f32, queries f64"));
  CHECK(contains(refused([&] { knn(make({7, 3}, DType::I64), make({5, 3}, DType::I64), 1); }), "is i64"));
  CHECK(contains(refused([&] { knn(Tensor(), q, 1); }), "points is undefined"));
  CHECK(refused([&] { radius_search(p, q, -0.5); }) ==
        "radius_search: radius -0.5 was given, 0 or more is needed");
  CHECK(contains(refused([&] { radius_search(p, q, std::nan(""), 3); }), "radius nan was given"));
  CHECK(contains(refused([&] { radius_search(p, q, 1.0, 0); }), "max_neighbors = 0 was given"));
  const Tensor meta(Array::empty({7, 3}, DType::F32, Device::Meta));
  CHECK(contains(refused([&] { knn(meta, meta, 1); }), "no values to search"));
}

TEST_CASE("coordinates that are not finite are refused by all ranks, with the first row", "[points]") {
  auto random = test_random(904);
  for (const DeviceMesh& mesh : all_meshes())
    for (int trial = 0; trial < trials(6); ++trial) {
      const bool in_points = chance(random, 50);
      Cloud points = random_cloud(random, 12, 2, Kind::Uniform);
      Cloud queries = random_cloud(random, 9, 2, Kind::Uniform);
      Cloud& bad = in_points ? points : queries;
      const std::int64_t row = random_int(random, 0, bad.rows - 1);
      const double value = pick(random, std::vector<double>{HUGE_VAL, -HUGE_VAL, std::nan("")});
      for (std::int64_t r = row; r < bad.rows; r += 2)
        bad.values[static_cast<std::size_t>(r * 2 + random_int(random, 0, 1))] = value;
      const Tensor p = placed_anyhow(random, mesh, points, DType::F64);
      const Tensor q = placed_anyhow(random, mesh, queries, DType::F64);
      const std::string text = refusal([&] { knn(p, q, 2); });
      INFO(text);
      CHECK(text == fmt::format("knn: row {} of {} has a coordinate that is not finite", row,
                                in_points ? "points" : "queries"));
      CHECK(same_everywhere(text));
      CHECK(contains(refusal([&] { radius_search(p, q, 0.1); }), "not finite"));
      CHECK(contains(refusal([&] { radius_search(p, q, 0.1, 2); }), "not finite"));
    }
}

TEST_CASE("far and tiny coordinates: squares that overflow or vanish", "[points]") {
  const DeviceMesh mesh = all_meshes().front();
  Cloud points{6, 2, {}};
  Cloud queries{3, 2, {}};
  const auto f = [](double v) { return static_cast<double>(static_cast<float>(v)); };
  for (const double v : {f(3e38), f(-3e38), f(1e-30), f(2e-30), 0.0, f(1e20)})
    points.values.insert(points.values.end(), {v, 0.0});
  for (const double v : {0.0, f(3e38), f(1e19)}) queries.values.insert(queries.values.end(), {v, 0.0});
  const SpecPtr rows = ShardSpec::make(mesh, {Shard(0)}, {6, 2});
  const NearestNeighbors found =
      knn(placed(points, rows, DType::F32), placed(queries, nullptr, DType::F32), 6);
  const std::vector<double> distances = found.distances.to_vector();
  const std::vector<double> indices = found.indices.to_vector();
  for (std::int64_t q = 0; q < 3; ++q) {
    const std::vector<Found> expected = all_points(points, queries, q, DType::F32);
    for (std::size_t j = 0; j < 6; ++j) {
      CHECK(distances[static_cast<std::size_t>(q) * 6 + j] == expected[j].distance);
      CHECK(indices[static_cast<std::size_t>(q) * 6 + j] == static_cast<double>(expected[j].index));
    }
  }
}
