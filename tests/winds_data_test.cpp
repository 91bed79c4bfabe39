// The winds as read by ranks: the same numbers whatever the cut, and the forecasts without learning.
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <set>

#include "comm/virtual.h"
#include "examples/winds/baselines.h"
#include "examples/winds/data.h"
#include "examples/winds/pictures.h"
#include "runtime/error.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::winds;

namespace {

// Rows lo..hi of part `part` of `parts`: 73 rows are never even.
Interval cut(std::int64_t n, int part, int parts) { return {n * part / parts, n * (part + 1) / parts}; }

WindSource source() { return {.path = find_wind_file("")}; }

WindData open(const Region& region, const Communicator& domain) {
  return WindData(source(), region, domain, domain);
}

// Whole map on one rank: the other ranks of the world do the same alone.
const WindData& whole() {
  static const Communicator alone = test_world().split(test_world().rank(), 0);
  static const WindData data = open({{{0, 73}}, {{0, 144}}}, alone);
  return data;
}

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  return "no error";
}

// Cells of `region` out of an array of the whole map [n, channels, 73, 144].
std::vector<double> cells_of(const Array& map, const Region& region) {
  std::vector<double> result;
  for (std::int64_t n = 0; n < map.size(0); ++n)
    for (std::int64_t c = 0; c < map.size(1); ++c)
      for (const Interval& rows : region.rows)
        for (std::int64_t r = rows.lo; r < rows.hi; ++r)
          for (const Interval& cols : region.cols) {
            const Array part = map.box({n, c, r, cols.lo}, {1, 1, 1, cols.length()});
            const std::vector<double> values = part.to_vector();
            result.insert(result.end(), values.begin(), values.end());
          }
  return result;
}

// What must not depend on the mesh, bit by bit.
void check_same_as_whole(const WindData& data, const Region& region) {
  const WindData& one = whole();
  CHECK(data.deviation(0) == one.deviation(0));
  CHECK(data.deviation(1) == one.deviation(1));
  CHECK(data.overall_damping() == one.overall_damping());
  const std::vector<int> months{3, 57, 131};
  for (const DType dtype : {DType::F32, DType::F64}) {
    const WindBatch mine = data.make_batch(months, dtype);
    const WindBatch all = one.make_batch(months, dtype);
    CHECK(mine.input.sizes() == Dims{3, kInputs, data.rows(), data.cols()});
    CHECK(mine.target.dtype() == dtype);
    CHECK(mine.input.to_vector() == cells_of(all.input, region));
    CHECK(mine.target.to_vector() == cells_of(all.target, region));
    CHECK(mine.base.to_vector() == cells_of(all.base, region));
  }
  const std::vector<Score> scores = baseline_scores(data);
  const std::vector<Score> wanted = baseline_scores(one);
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    CHECK(scores[i].plain == wanted[i].plain);
    CHECK(scores[i].weighted == wanted[i].weighted);
  }
}

}  // namespace

TEST_CASE("forecasts without learning score what they are known to score") {
  const std::vector<Score> scores = baseline_scores(whole());
  const double known[4][2] = {{2.185, 2.121}, {1.990, 1.858}, {1.855, 1.741}, {1.766, 1.675}};
  REQUIRE(scores.size() == 4);
  for (std::size_t i = 0; i < 4; ++i) {
    CAPTURE(scores[i].name);
    CHECK(std::abs(scores[i].plain - known[i][0]) < 0.0006);
    CHECK(std::abs(scores[i].weighted - known[i][1]) < 0.0006);
  }
  const std::string table = score_table(scores);
  CHECK(std::count(table.begin(), table.end(), '\n') == 6);
  CHECK(table.find("1.766 *   1.675 *") != std::string::npos);
}

TEST_CASE("the fit and the samples are what they are defined to be") {
  const WindData& data = whole();
  CHECK(data.grid().months == 132);
  CHECK(data.train_months().front() == 3);
  CHECK(data.train_months().back() == 107);
  CHECK(data.test_months().front() == 108);
  CHECK(data.test_months().size() == 24);
  CHECK(data.latitudes().front() == -90);
  CHECK(data.latitudes().back() == 90);
  CHECK(data.longitudes().front() == 20);
  CHECK(data.weights()[0] == Approx(0).margin(1e-15));
  CHECK(data.weights()[36 * 144] == 1);
  CHECK(data.deviation(0) == Approx(1.98543986));
  CHECK(data.deviation(1) == Approx(1.60257494));
  // One cell, by hand.
  const std::size_t cell = 20 * 144 + 31;
  const int t = 64;
  const auto x = [&](int month, int c) { return data.wind(month, c)[cell]; };
  std::vector<double> clim(12);
  for (int m = 0; m < 108; ++m) clim[static_cast<std::size_t>(m % 12)] += x(m, 1) / 9;
  const auto a = [&](int month) { return x(month, 1) - clim[static_cast<std::size_t>(month % 12)]; };
  double products = 0;
  double squares = 0;
  for (int m = 0; m < 108; ++m) squares += a(m) * a(m);
  for (int m = 1; m < 108; ++m) products += a(m) * a(m - 1);
  const double base = clim[t % 12] + products / squares * a(t - 1);
  const std::vector<int> months{t};
  const WindBatch batch = data.make_batch(months, DType::F64);
  const auto at = [&](const Array& array, std::int64_t channel) {
    return array.box({0, channel, 20, 31}, {1, 1, 1, 1}).at(0);
  };
  CHECK(at(batch.base, 1) == Approx(base));
  CHECK(at(batch.target, 1) == Approx((x(t, 1) - base) / data.deviation(1)));
  CHECK(at(batch.input, 1) == Approx(a(t - 1) / data.deviation(1)));
  CHECK(at(batch.input, 5) == Approx(a(t - 3) / data.deviation(1)));
  CHECK(at(batch.input, 7) == Approx(clim[t % 12] / 2.11606729));
  CHECK(at(batch.input, 8) == Approx(std::sin(2 * std::numbers::pi * (t % 12) / 12)));
  CHECK(at(batch.input, 9) == Approx(std::cos(2 * std::numbers::pi * (t % 12) / 12)));
  // The target as output is the truth.
  CHECK(at(data.to_wind(batch.target, months), 1) == Approx(x(t, 1)));
  CHECK(error_of([&] { data.make_batch(std::vector<int>{2}); }) ==
        "winds: month 2 is no sample; samples are months 3 to 131");
}

TEST_CASE("ranks that split the map by latitude have the whole map's numbers, bit by bit") {
  const Communicator world = test_world();
  const Region region{{cut(73, world.rank(), world.size())}, {{0, 144}}};
  const WindData data = open(region, world);
  check_same_as_whole(data, region);
  // Only its own rows: 132 months of two components, 4 bytes each.
  CHECK(data.bytes_read() == 132 * 2 * region.rows[0].length() * 144 * 4);
}

TEST_CASE("any other partition: both dims, several intervals, empty ranks") {
  run_virtual_ranks(4, [](Communicator comm) {
    const int r = comm.rank();
    const Region blocks{{cut(73, r / 2, 2)}, {cut(144, r % 2, 2)}};
    const Region zigzag{{cut(73, r, 8), cut(73, 7 - r, 8)}, {{0, 50}, {50, 144}}};
    const Region some{{r == 1 ? Interval{0, 73} : Interval{73, 73}}, {{0, 144}}};
    for (const Region& region : {blocks, zigzag, some}) {
      const WindData data = open(region, comm);
      std::vector<Score> scores = baseline_scores(data);
      // Catch's checks are for one thread: the verdict travels as an error.
      const auto wrong = [](const char* what) { TS_FAIL(Internal, "winds_data_test", "{} differs", what); };
      const std::vector<int> months{3, 130};
      if (data.make_batch(months).input.to_vector() != cells_of(whole().make_batch(months).input, region))
        wrong("input");
      if (data.make_batch(months).target.to_vector() != cells_of(whole().make_batch(months).target, region))
        wrong("target");
      if (data.overall_damping() != whole().overall_damping()) wrong("damping");
      const std::vector<Score> wanted = baseline_scores(whole());
      for (std::size_t i = 0; i < wanted.size(); ++i)
        if (scores[i].plain != wanted[i].plain || scores[i].weighted != wanted[i].weighted) wrong("score");
    }
  });
}

TEST_CASE("regions that do not hold the map, and files that are not there, are refused on all ranks") {
  const Communicator world = test_world();
  const Region half{{cut(73, world.rank(), world.size() + 1)}, {{0, 144}}};
  const std::string message = error_of([&] { open(half, world); });
  CHECK(message.rfind("winds: the ranks' regions hold ", 0) == 0);
  CHECK(message.find("the map has 73 x 144 = 10512") != std::string::npos);
  WindSource wrong = source();
  wrong.u = "WIND";
  CHECK(error_of([&] { read_grid_shape(wrong, world); }).find("has no variable 'WIND'; it has FNOCX") !=
        std::string::npos);
  wrong = source();
  wrong.held_out = 130;
  CHECK(error_of([&] { read_grid_shape(wrong, world); }).find("has 132 months") != std::string::npos);
  wrong.path = "no/such.cdf";
  CHECK(error_of([&] { read_grid_shape(wrong, world); }).find("'no/such.cdf' does not exist") !=
        std::string::npos);
  const GridShape shape = read_grid_shape(source(), world);
  CHECK((shape.months == 132 && shape.rows == 73 && shape.cols == 144));
  CHECK(find_wind_file("mine.nc") == "mine.nc");
}

TEST_CASE("sums in fixed point do not depend on order, and refuse what they cannot hold") {
  const Communicator world = test_world();
  ExactSums forward(1);
  ExactSums backward(1);
  for (int i = 0; i < 1000; ++i) forward.add(0, std::sin(i) * std::exp(i % 17));
  for (int i = 999; i >= 0; --i) backward.add(0, std::sin(i) * std::exp(i % 17));
  CHECK(forward.reduce(world, "these") == backward.reduce(world, "these"));
  ExactSums large(2);
  large.add(1, world.rank() == world.size() - 1 ? 2e10 : 1.0);
  CHECK(error_of([&] { large.reduce(world, "errors of mine"); }).find("errors of mine come to ") !=
        std::string::npos);
}

TEST_CASE("the order of samples: whole passes, each shuffled anew, from the seed alone") {
  const SampleOrder order(whole().train_months(), 7);
  std::vector<int> first;
  std::vector<int> second;
  // 105 samples in batches of 4: batches cross the end of a pass.
  for (std::int64_t step = 0; step < 53; ++step)
    for (const int month : order.batch(step, 4)) (first.size() < 105 ? first : second).push_back(month);
  second.resize(105);
  CHECK(std::set<int>(first.begin(), first.end()).size() == 105);
  CHECK(std::set<int>(second.begin(), second.end()).size() == 105);
  CHECK(first != second);
  // Other batch sizes see the same row of samples; another seed another one.
  std::vector<int> by_seven;
  for (std::int64_t step = 0; step < 15; ++step)
    for (const int month : order.batch(step, 7)) by_seven.push_back(month);
  CHECK(by_seven == first);
  CHECK(SampleOrder(whole().train_months(), 8).batch(0, 105) != first);
  CHECK(SampleOrder(whole().train_months(), 7).batch(0, 105) == first);
}

TEST_CASE("the numbers behind the map") {
  CHECK(month_name(0) == "January 1980");
  CHECK(month_name(114) == "July 1989");
  const std::string name = "winds_map_" + std::to_string(test_world().rank());
  const std::vector<int> months{114};
  const WindBatch batch = whole().make_batch(months, DType::F64);
  const Array truth = whole().to_wind(batch.target, months).squeeze(0);
  write_map(name, whole(), truth, batch.base.squeeze(0));
  std::ifstream in(name);
  std::string line;
  std::getline(in, line);
  double v[6] = {};
  for (double& x : v) in >> x;
  CHECK(v[0] == 20);
  CHECK(v[1] == -90);
  CHECK(v[2] == Approx(whole().wind(114, 0)[0]).margin(1e-4));
  CHECK(v[5] == Approx(batch.base.at(73 * 144)).margin(1e-4));
  CHECK(write_relief(name, find_wind_file("")));
  CHECK_FALSE(write_relief(name, "/no/such/winds.cdf"));
  std::filesystem::remove(name);
}
