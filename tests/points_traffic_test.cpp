// What neighbours cost: who sends how much to whom, and that awkward clouds neither take long nor much
// memory.
#include <catch2/catch.hpp>

#include <ctime>

#include "comm/virtual.h"
#include "runtime/process.h"
#include "tests/points_cases.h"

using namespace tessera;
using namespace tessera::points_cases;

namespace {

constexpr std::int64_t kRowBytes = 3 * 4 + 8;  // f32 coordinates in 3-D and the row's number

constexpr std::int64_t kCellBytes = 7 * 4;  // a box of queries and how far they reach

struct Sent {
  std::int64_t boxes = 0;     // bytes told to all ranks
  std::int64_t boxed = 0;     // so many times
  std::int64_t messages = 0;  // to single ranks
  std::int64_t bytes = 0;
};

// What each of `ranks` sends in `f(mesh)`.
std::vector<Sent> sent_by_ranks(int ranks, const std::function<void(const DeviceMesh&)>& f) {
  std::vector<Sent> all(static_cast<std::size_t>(ranks));
  run_virtual_ranks(ranks, [&](const Communicator& comm) {
    const DeviceMesh mesh(comm, {{"domain", ranks}});
    comm.recorder().start();
    f(mesh);
    comm.recorder().stop();
    Sent& mine = all[static_cast<std::size_t>(comm.rank())];
    for (const CommRecord& r : comm.recorder().records()) {
      if (r.kind == "exchange") {
        mine.messages += r.messages;
        mine.bytes += r.bytes;
      } else {
        ++mine.boxed;
        mine.boxes += r.bytes;
      }
    }
  });
  return all;
}

Tensor in_order(const DeviceMesh& mesh, const Cloud& cloud) {
  return placed(cloud, ShardSpec::make(mesh, {Shard(0)}, {cloud.rows, cloud.dims}), DType::F32);
}

// Slabs along the first dim: rank r's points have it in [r, r + 1) · spacing (and width 1).
Cloud slabs(Random& random, int ranks, std::int64_t each, double spacing) {
  Cloud cloud = random_cloud(random, ranks * each, 3, Kind::Uniform);
  for (std::int64_t row = 0; row < cloud.rows; ++row) {
    double& x = cloud.values[static_cast<std::size_t>(row * 3)];
    x = static_cast<float>(x + spacing * static_cast<double>(row / each));
  }
  return cloud;
}

// Published: two kinds of boxes, at most 64 of 6 floats and a double each, in each of the rounds, a header.
constexpr std::int64_t kBoxBytes = 2 * (2 * 64 * (6 * 4 + 8) + 64);

}  // namespace

TEST_CASE("ranks that are far apart exchange nothing but boxes", "[points]") {
  constexpr int kRanks = 6;
  auto random = test_random(920);
  const Cloud cloud = slabs(random, kRanks, 200, 100);
  for (const int form : {0, 1, 2}) {
    const std::vector<Sent> sent = sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
      const Tensor x = in_order(mesh, cloud);
      if (form == 0) knn(x, x, 16);
      if (form == 1) radius_search(x, x, 2.0, 16);
      if (form == 2) radius_search(x, x, 2.0);
    });
    for (const Sent& s : sent) {
      CHECK(s.messages == 0);
      CHECK(s.boxes <= kBoxBytes);
    }
  }
}

TEST_CASE("only neighbours in a row of slabs exchange points, and only those near the border", "[points]") {
  constexpr int kRanks = 5;
  constexpr std::int64_t kEach = 4000;
  constexpr double kRadius = 0.05;
  auto random = test_random(921);
  const Cloud cloud = slabs(random, kRanks, kEach, 1);
  for (const int form : {0, 1}) {
    const std::vector<Sent> sent = sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
      const Tensor x = in_order(mesh, cloud);
      if (form == 0) knn(x, x, 2);
      if (form == 1) radius_search(x, x, kRadius);
    });
    for (int r = 0; r < kRanks; ++r) {
      const Sent& s = sent[static_cast<std::size_t>(r)];
      const int borders = r == 0 || r == kRanks - 1 ? 1 : 2;
      CHECK(s.messages == 5 * borders);  // boxes, numbers and coordinates of points, two counts
      // A slab as deep as the reach at every border, and as much again for boxes that are not flat.
      const double rows = borders * 2 * kRadius * static_cast<double>(kEach);
      CHECK(s.bytes < static_cast<std::int64_t>(rows) * kRowBytes + 16 * borders);
      CHECK(s.bytes > 8 * borders);
    }
  }
}

TEST_CASE("queries that lie elsewhere than the points fetch only what is near", "[points]") {
  constexpr int kRanks = 8;
  auto random = test_random(922);
  const Cloud points = slabs(random, kRanks, 4000, 1);
  Cloud queries = random_cloud(random, kRanks * 5, 3, Kind::Uniform);  // a few on every rank, all over
  for (std::int64_t row = 0; row < queries.rows; ++row)
    queries.values[static_cast<std::size_t>(row * 3)] *= kRanks;
  const std::vector<Sent> sent = sent_by_ranks(
      kRanks, [&](const DeviceMesh& mesh) { knn(in_order(mesh, points), in_order(mesh, queries), 4); });
  std::int64_t bytes = 0;
  for (const Sent& s : sent) bytes += s.bytes;
  CHECK(bytes > 0);
  // Questions, answers, and as many points as lie nearer than the fourth of one rank. All to all would be 7
  // times all points: 100 times as much.
  CHECK(bytes < queries.rows * 50 * kRowBytes);
}

TEST_CASE("few queries make few points travel, in whatever order the points are", "[points]") {
  constexpr int kRanks = 8;
  auto random = test_random(927);
  const Cloud points = random_cloud(random, kRanks * 4000, 3, Kind::Uniform);
  const Cloud queries = random_cloud(random, kRanks * 20, 3, Kind::Uniform);
  for (const int form : {0, 1}) {
    const std::vector<Sent> sent = sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
      if (form == 0) knn(in_order(mesh, points), in_order(mesh, queries), 4);
      if (form == 1) radius_search(in_order(mesh, points), in_order(mesh, queries), 0.03);
    });
    std::int64_t bytes = 0;
    for (const Sent& s : sent) bytes += s.bytes;
    // A ball that holds 4 points of one rank holds about 32 of all; its box more. All points are 200 a query.
    CHECK(bytes < queries.rows * (32 * 3 * kRowBytes + kRanks * (kCellBytes + 16)));
  }
}

TEST_CASE("a cloud in no order moves once, and no rank gets all of it", "[points]") {
  constexpr int kRanks = 8;
  constexpr std::int64_t kPoints = 8000;
  constexpr std::int64_t k = 4;
  auto random = test_random(923);
  const Cloud cloud = random_cloud(random, kPoints, 3, Kind::Uniform);
  const Tensor plain = placed(cloud, nullptr, DType::F32);
  const std::vector<double> near = knn(plain, plain, k).indices.to_vector();
  const NeighborLists lists = radius_search(plain, plain, 0.04);
  const std::vector<double> listed = lists.indices.to_vector();
  const std::vector<double> starts = lists.offsets.to_vector();
  std::vector<int> right(kRanks, 0);  // no assertions on threads
  const std::vector<Sent> sent = sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
    const Tensor x = in_order(mesh, cloud);
    const NearestNeighbors found = knn(x, x, k);
    mesh.comm().recorder().stop();
    const NeighborLists all = radius_search(x, x, 0.04);
    right[static_cast<std::size_t>(mesh.rank())] = found.indices.to_vector() == near &&
                                                   all.indices.to_vector() == listed &&
                                                   all.offsets.to_vector() == starts;
  });
  const std::int64_t share = kPoints / kRanks;
  for (int r = 0; r < kRanks; ++r) {
    CHECK(right[static_cast<std::size_t>(r)] == 1);
    // Its points and queries, the answers (a distance and a number each) of about as many, and what is near
    // the borders of its region.
    const std::int64_t moved = share * (2 * kRowBytes + 12 * k + 8);
    CHECK(sent[static_cast<std::size_t>(r)].bytes < 2 * moved);
  }
}

TEST_CASE("points in one place: no more than k of them travel to a rank", "[points]") {
  constexpr int kRanks = 4;
  const Cloud cloud{4000, 3, std::vector<double>(12000, 0.5)};
  const std::vector<Sent> sent = sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
    const Tensor x = in_order(mesh, cloud);
    const NearestNeighbors found = knn(x, x, 7);
    for (std::int64_t i = 0; i < found.indices.local().numel(); ++i)
      if (found.indices.local().data<std::int64_t>()[i] != i % 7)
        TS_FAIL(Internal, "test", "wrong neighbour");
  });
  for (const Sent& s : sent) CHECK(s.bytes <= 3 * (8 + kCellBytes + 8 + 7 * kRowBytes));
}

TEST_CASE("a gradient travels only to the owners of neighbours", "[points]") {
  constexpr int kRanks = 4;
  auto random = test_random(924);
  const Cloud cloud = slabs(random, kRanks, 2000, 1);
  std::vector<std::int64_t> backward(kRanks, 0);
  sent_by_ranks(kRanks, [&](const DeviceMesh& mesh) {
    Tensor x = in_order(mesh, cloud);
    x.set_requires_grad();
    const Tensor d = knn(x, x, 4).distances;
    const std::int64_t before = mesh.comm().recorder().totals().bytes;
    d.backward(ones_like(d));
    backward[static_cast<std::size_t>(mesh.rank())] = mesh.comm().recorder().totals().bytes - before;
  });
  // Numbers twice, coordinates there and gradients back, of the points near two borders.
  for (const std::int64_t bytes : backward) CHECK(bytes < 2 * 2000 / 5 * (2 * 8 + 2 * 12));
}

TEST_CASE("awkward clouds take no longer than random ones", "[points]") {
  if (test_world().size() > 1) return;
  constexpr std::int64_t kPoints = 60'000;
  auto random = test_random(925);
  const auto seconds = [&](const Cloud& cloud) {
    const Tensor x = placed(cloud, nullptr, DType::F32);
    const std::clock_t start = std::clock();
    knn(x, x, 8);
    return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  };
  const double usual = seconds(random_cloud(random, kPoints, 3, Kind::Uniform));
  // Comparing all with all would take a hundred times as long.
  for (const Kind kind : {Kind::Equal, Kind::Line, Kind::Clusters}) {
    Cloud cloud = random_cloud(random, kPoints, 3, kind);
    INFO("kind " << static_cast<int>(kind));
    CHECK(seconds(cloud) < 8 * usual + 0.1);
    cloud.values[0] = 1e30;  // all others in one corner
    CHECK(seconds(cloud) < 8 * usual + 0.1);
  }
}

namespace {

void many_sizes(int warm, int counted) {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  auto random = test_random(926);
  const auto step = [&](int n) {
    const Cloud points = random_cloud(random, 3 + n % 311, 2, Kind::Uniform);
    const Cloud queries = random_cloud(random, n % 293, 2, Kind::Uniform);
    const auto cut = [&](const Cloud& c) {
      const DimCut rows = random_cut(random, {0}, c.rows, mesh.size());
      return placed(c, ShardSpec::make(mesh, {Shard(0)}, {c.rows, 2}, {rows, {}}), DType::F32);
    };
    Tensor p = cut(points);
    p.set_requires_grad();
    const Tensor near = knn(p, cut(queries), 1 + n % 3).distances;
    near.backward(ones_like(near));
    radius_search(p, cut(queries), 0.1);
  };
  for (int n = 0; n < warm; ++n) step(n);
  const std::int64_t before = resident_bytes();
  for (int n = warm; n < warm + counted; ++n) step(n);
  CHECK(resident_bytes() - before < 24 << 20);
}

}  // namespace

TEST_CASE("many sizes leave memory flat", "[points]") { many_sizes(1500, 1500); }
TEST_CASE("a hundred thousand sizes leave memory flat", "[.long]") { many_sizes(5000, 95'000); }
