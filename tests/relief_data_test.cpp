// The relief as read by ranks: the same numbers whatever the cut, the map without a seam, and what bicubic
// interpolation is known to score.
#include <catch2/catch.hpp>
#include <cmath>

#include "comm/virtual.h"
#include "examples/relief/score.h"
#include "ops/ops.h"
#include "runtime/error.h"
#include "tests/relief_run.h"

using namespace tessera;
using namespace tessera::relief;

namespace {

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

ReliefSource source_with(int reduce, int coarsen) {
  Settings s;
  s.reduce = reduce;
  s.coarsen = coarsen;
  return source_of(s, maps::find_ferret_file(kProgram, "", kReliefFile));
}

// A map as read over the ranks of `comm`.
struct Opened {
  ReliefSource source;
  maps::MapCut cut;
  ReliefData data;
  Opened(const ReliefSource& s, const Communicator& comm, std::vector<MeshAxis> axes)
      : source(s),
        cut(maps::cut_map(kProgram, DeviceMesh(comm, std::move(axes)), read_map_shape(s, comm))),
        data(source, cut, comm) {}
};

// The whole map on one rank: the other ranks of the world do the same alone.
const ReliefData& whole() {
  static const Communicator alone = test_world().split(test_world().rank(), 0);
  static const Opened opened(source_with(30, 4), alone, {{"domain", 1}});
  return opened.data;
}

std::vector<Score> scores_of(const ReliefData& data) {
  return {score_of("blocks", data, data.blocks(), Where::HeldOut),
          score_of("base", data, data.base(), Where::HeldOut),
          score_of("base", data, data.base(), Where::Training)};
}

// "" or what differs from the whole map, bit by bit.
std::string difference(const ReliefData& data) {
  const ReliefData& one = whole();
  const auto same = [](const Tensor& a, const Tensor& b) { return a.to_vector() == b.to_vector(); };
  if (!same(data.truth(), one.truth())) return "truth";
  if (!same(data.blocks(), one.blocks())) return "blocks";
  if (!same(data.base(), one.base())) return "base";
  for (const DType dtype : {DType::F32, DType::F64}) {
    if (!same(data.inputs(dtype), one.inputs(dtype))) return "inputs";
    if (!same(data.factor(dtype), one.factor(dtype))) return "factor";
    if (!same(data.goal(dtype), one.goal(dtype))) return "goal";
  }
  const std::vector<Score> got = scores_of(data);
  const std::vector<Score> want = scores_of(one);
  for (std::size_t i = 0; i < got.size(); ++i)
    if (got[i].land.plain != want[i].land.plain || got[i].sea.weighted != want[i].sea.weighted ||
        got[i].all.plain != want[i].all.plain)
      return "score";
  return "";
}

void check_errors(const Score::Errors& got, double plain, double weighted) {
  CHECK(std::abs(got.plain - plain) < 0.01);
  CHECK(std::abs(got.weighted - weighted) < 0.01);
}

}  // namespace

// Worked out with NumPy and PyTorch (block means, F.interpolate of a map with columns of the other side at
// its ends).
TEST_CASE("what is known without learning scores what it is known to score") {
  const std::vector<Score> small = scores_of(whole());
  check_errors(small[0].land, 976.896, 1029.708);
  check_errors(small[1].land, 931.824, 989.237);
  check_errors(small[1].sea, 873.836, 900.783);
  check_errors(small[1].all, 901.775, 942.396);
  const Opened shipped(source_with(5, 8), test_world(), {{"lat", test_world().size()}});
  const std::vector<Score> scores = scores_of(shipped.data);
  check_errors(scores[0].all, 724.279, 757.600);
  check_errors(scores[1].land, 537.654, 564.851);
  check_errors(scores[1].sea, 606.327, 636.301);
  check_errors(scores[1].all, 576.404, 605.757);
  // Each rank has read its own rows and no others: 4 bytes a height, 5 rows of the file for one of the map.
  CHECK(shipped.data.bytes_read() == shipped.data.rows() * 5 * 4320 * 4);
  CHECK(score_table(scores).find("606.3 ") != std::string::npos);
}

TEST_CASE("the samples are what they are defined to be") {
  const ReliefData& data = whole();
  CHECK(data.latitudes().front() == Approx(-90 + 29.0 / 24));
  CHECK(data.longitudes().back() == Approx(360 - 2.5 + 29.0 / 24).margin(2e-3));
  // Where the model is silent the loss is that of the base, 1; where it gives (truth - base) / spread, 0.
  const Tensor factor = data.factor(DType::F64);
  const Tensor goal = data.goal(DType::F64);
  CHECK(sum(square(goal)).item() == Approx(1));
  const std::vector<double> f = factor.to_vector();
  const std::vector<double> g = goal.to_vector();
  const std::vector<double> truth = data.truth().to_vector();
  std::vector<double> best(f.size());
  for (std::size_t i = 0; i < f.size(); ++i) {
    CHECK((f[i] == 0) == (data.held_out()[i] != 0));
    best[i] = f[i] == 0 ? 0 : g[i] / f[i];
  }
  const std::vector<double> heights =
      data.to_heights(tensor(best, {1, 1, data.rows(), data.cols()}, DType::F64)).to_vector();
  for (std::size_t i = 0; i < f.size(); ++i)
    if (f[i] != 0) REQUIRE(heights[i] == Approx(truth[i]).margin(1e-6));
}

TEST_CASE("ranks that split the map in either direction have the whole map's numbers, bit by bit") {
  const int n = test_world().size();
  CHECK(difference(Opened(source_with(30, 4), test_world(), {{"lat", n}}).data) == "");
  CHECK(difference(Opened(source_with(30, 4), test_world(), {{"lon", n}}).data) == "");
}

TEST_CASE("both directions at once, and more ranks than blocks: some have nothing") {
  for (const std::vector<MeshAxis>& axes :
       std::vector<std::vector<MeshAxis>>{{{"lon", 2}, {"lat", 3}}, {{"lat", 6}, {"lon", 1}}}) {
    run_virtual_ranks(6, [&](Communicator comm) {
      // Catch's checks are for one thread: the verdict travels as an error.
      const Opened opened(source_with(30, 4), comm, axes);
      if (const std::string wrong = difference(opened.data); !wrong.empty())
        TS_FAIL(Internal, "relief_data_test", "{} differs", wrong);
    });
  }
  ReliefSource coarse = source_with(180, 12);  // one row of blocks
  coarse.levels = 1;
  coarse.held_out = {{0, 180, -90, 90}};
  const Opened one(coarse, test_world(), {{"lat", test_world().size()}});
  const double error = score_of("base", one.data, one.data.base(), Where::HeldOut).all.plain;
  CHECK(std::isfinite(error));
  CHECK(one.data.truth().sizes() == Dims{1, 1, 12, 24});
}

TEST_CASE("regions are held out block by block, also across the seam") {
  const LonLatBox seam{-10, 25, 45, 70};
  CHECK((seam.contains(355, 50) && seam.contains(-5, 50) && seam.contains(24.9, 45)));
  CHECK_FALSE((seam.contains(25, 50) || seam.contains(349, 50) || seam.contains(0, 70)));
  CHECK(LonLatBox{0, 360, -90, 90}.contains(123, 0));
  const ReliefData& data = whole();
  for (std::size_t r = 0; r < 72; ++r)
    for (std::size_t c = 0; c < 144; ++c)
      REQUIRE(data.held_out()[r * 144 + c] == data.held_out()[r / 4 * 4 * 144 + c / 4 * 4]);
}

TEST_CASE("sizes that do not divide and files that are no globe are refused on all ranks") {
  const auto shape = [](const ReliefSource& s) { return read_map_shape(s, test_world()); };
  CHECK(error_of([&] { shape(source_with(7, 8)); }).find("reduce 7 do not divide the 2160 rows") !=
        std::string::npos);
  CHECK(error_of([&] { shape(source_with(4, 8)); })
            .find("multiples of 8 rows and columns; reduced 4 times, "
                  "the map has 540 x 1080") != std::string::npos);
  ReliefSource wrong = source_with(5, 8);
  wrong.path = "no/such.cdf";
  CHECK(error_of([&] { shape(wrong); }).find("'no/such.cdf' does not exist") != std::string::npos);
  wrong = source_with(5, 8);
  wrong.variable = "ETOPO05_X";
  CHECK(error_of([&] { shape(wrong); }).find("wanted is [latitude, longitude] of the whole globe") !=
        std::string::npos);
  CHECK(error_of([] { regions_of({1, 2, 3}); }).find("given 3 numbers") != std::string::npos);
  CHECK(error_of([] { regions_of({10, 5, 0, 1}); }).find("10,5,0,1 is no west, east") != std::string::npos);
  CHECK(error_of([] { regions_of({0, 10, 80, 95}); }).find("-90 to 90") != std::string::npos);
  CHECK(error_of([] { regions_of({0, 10, -91, 0}); }).find("0,10,-91,0 is no west") != std::string::npos);
  ReliefSource all = source_with(30, 4);
  all.held_out = {{0, 360, -90, 90}};
  CHECK(error_of([&] {
          Opened(all, test_world(), {{"lat", test_world().size()}});
        }).find("10368 of 10368 cells are held out") != std::string::npos);
}
