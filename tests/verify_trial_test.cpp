// How trials are drawn, and how results are compared.
#include <unistd.h>

#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <set>

#include "tests/support/world.h"
#include "verify/compare.h"
#include "verify/trial.h"

using namespace tessera;
using namespace tessera::verify;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Array values(std::initializer_list<double> list, DType dtype = DType::F32) {
  const std::vector<double> v(list);
  return Array::from(v, {static_cast<std::int64_t>(v.size())}, dtype);
}

// A case by its shapes alone.
Case some_case(const std::string& name) {
  Case c;
  c.name = name;
  c.inputs["x"] = Array::zeros({4, 9, 5}, DType::F32);
  c.inputs["scalar"] = Array::zeros({}, DType::F32);
  c.inputs["nothing"] = Array::zeros({0, 3}, DType::I64);
  c.params["w"] = Array::zeros({5, 2}, DType::F32);
  c.cotangents["y"] = Array::zeros({4, 9, 2}, DType::F32);
  return c;
}

int product(const std::vector<int>& mesh) {
  int p = 1;
  for (const int n : mesh) p *= n;
  return p;
}

// The intervals of a cut tile [0, n) once, for as many parts as the axes have ranks.
void require_tiles(const DimCut& cut, std::int64_t n, const std::vector<int>& mesh) {
  std::size_t parts = 1;
  for (const int a : cut.axes) parts *= static_cast<std::size_t>(mesh[static_cast<std::size_t>(a)]);
  REQUIRE(cut.parts.size() == parts);
  std::vector<int> held(static_cast<std::size_t>(n), 0);
  for (const Intervals& part : cut.parts)
    for (const Interval i : part)
      for (std::int64_t at = i.lo; at < i.hi; ++at) ++held.at(static_cast<std::size_t>(at));
  for (const int times : held) REQUIRE(times == 1);
}

std::set<std::string> kinds_of(const TensorPlan& plan) {
  std::set<std::string> kinds;
  if (plan.plain) kinds.insert("plain");
  std::multiset<int> dims;
  for (const Placement& p : plan.placements) {
    kinds.insert(p.is_shard() ? "sharded" : p.is_partial() ? "owed" : "replicated");
    if (p.is_shard() && !dims.empty()) kinds.insert(dims.count(p.dim) > 0 ? "one dim twice" : "two dims");
    if (p.is_shard()) dims.insert(p.dim);
  }
  for (const auto& cut : plan.cuts) {
    if (!cut) continue;
    if (cut->axes == std::vector<int>{1, 0}) kinds.insert("inner axis first");
    for (const Intervals& part : cut->parts) {
      std::int64_t length = 0;
      for (const Interval i : part) length += i.length();
      if (length == 0) kinds.insert("empty");
      if (length == 1) kinds.insert("one");
      if (part.size() > 1) kinds.insert("several intervals");
      if (part.size() > 1 && part[0].lo > part[1].lo) kinds.insert("descending");
    }
  }
  return kinds;
}

}  // namespace

TEST_CASE("a trial depends on seed, name and number alone, and all ranks draw the same") {
  const TrialChoice choice{7, 4, {}};
  const std::string once = draw_trial(some_case("a"), choice, 3).str();
  for (const std::string& theirs : test_world().all_gather_bytes(once)) CHECK(theirs == once);
  CHECK(draw_trial(some_case("a"), choice, 3).str() == once);
  CHECK(draw_trial(some_case("a"), choice, 9).str() != once);
  CHECK(draw_trial(some_case("b"), choice, 3).str() != once);
  CHECK(draw_trial(some_case("a"), {8, 4, {}}, 3).str() != once);
  CHECK(draw_trial(some_case("a"), {7, 4, {4, 1}}, 3).mesh == std::vector<int>{4, 1});
}

TEST_CASE("three trials of each of many cases see every kind of cut often") {
  std::map<std::string, int> seen;
  for (int i = 0; i < 400; ++i)
    for (int number = 0; number < 3; ++number) {
      const Trial trial = draw_trial(some_case(fmt::format("case {}", i)), {7, 4, {}}, number);
      for (const std::string& kind : kinds_of(trial.tensors.at("in.x"))) ++seen[kind];
    }
  for (const char* kind : {"empty", "one", "several intervals"}) {
    INFO(kind);
    CHECK(seen[kind] > 75);
  }
}

TEST_CASE("trials are legal, and a few hundred of them see every kind of split") {
  const Case c = some_case("every kind");
  std::set<std::string> x;
  std::set<std::string> w;
  std::set<std::vector<int>> meshes;
  std::set<std::vector<std::int64_t>> orders;
  int plain_params = 0;
  for (const int ranks : {1, 2, 3, 4, 6}) {
    for (int number = 0; number < 300; ++number) {
      const Trial trial = draw_trial(c, {test_seed(), ranks, {}}, number);
      INFO(trial.str());
      REQUIRE(product(trial.mesh) == ranks);
      REQUIRE((trial.mesh.size() == 1 || trial.mesh.size() == 2));
      REQUIRE(trial.tensors.size() == 5);
      const std::map<std::string, Dims> sizes{{"in.x", {4, 9, 5}},
                                              {"in.scalar", {}},
                                              {"in.nothing", {0, 3}},
                                              {"param.w", {5, 2}},
                                              {"cot.y", {4, 9, 2}}};
      for (const auto& [name, plan] : trial.tensors) {
        REQUIRE(plan.placements.size() == trial.mesh.size());
        REQUIRE((plan.source >= 0 && plan.source < ranks));
        for (std::size_t d = 0; d < plan.cuts.size(); ++d)
          if (plan.cuts[d]) require_tiles(*plan.cuts[d], sizes.at(name)[static_cast<int>(d)], trial.mesh);
      }
      x.merge(kinds_of(trial.tensors.at("in.x")));
      orders.insert(trial.tensors.at("in.x").order.vec());
      REQUIRE(trial.tensors.at("in.scalar").order.empty());
      w.merge(kinds_of(trial.tensors.at("param.w")));
      for (const char* name : {"in.nothing", "param.w", "cot.y"})  // of integers, of no data
        CHECK(kinds_of(trial.tensors.at(name)).count("owed") == 0);
      plain_params += trial.tensors.at("param.w").plain ? 1 : 0;
      CHECK_FALSE(trial.tensors.at("cot.y").plain);
      meshes.insert(trial.mesh);
    }
  }
  for (const char* kind : {"plain", "replicated", "sharded", "owed", "one dim twice", "two dims",
                           "inner axis first", "empty", "one", "several intervals", "descending"}) {
    INFO(kind);
    CHECK(x.count(kind) == 1);
  }
  for (const char* kind : {"plain", "replicated", "sharded"}) CHECK(w.count(kind) == 1);
  CHECK(plain_params > 500);  // most of 1500
  CHECK(orders == std::set<std::vector<std::int64_t>>{
                      {}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}});  // in memory
  for (const std::vector<int>& mesh :
       {std::vector<int>{1}, {2}, {3}, {4}, {2, 2}, {2, 3}, {3, 2}, {1, 4}, {4, 1}})
    CHECK(meshes.count(mesh) == 1);
}

TEST_CASE("a limit's trial is as it says, with the rest replicated") {
  Case c = some_case("limited");
  Limit limit;
  limit.mesh = {3};
  limit.placements["x"] = {AxisPlacement{1}};
  limit.cuts["x"] = {{4, 0, 5}};
  limit.max_forward_bytes = 100;
  c.limits.push_back(limit);
  Trial trial = limit_trial(c, {1, 3, {}}, 0);
  for (auto& [name, plan] : trial.tensors) plan.order = {};
  CHECK(trial.id == "limit0");
  CHECK(trial.max_forward_bytes == 100);
  CHECK(trial.tensors.at("in.x").str() == "S1 dim 1 cut [0,4) [4,4) [4,9)");
  CHECK(trial.tensors.at("param.w").str() == "R");
  CHECK(trial.tensors.at("in.scalar").str() == "R");
}

TEST_CASE("a plan says how the tensor lies in memory") {
  TensorPlan plan;
  plan.placements = {Shard(1)};
  plan.order = {0, 2, 1};
  CHECK(plan.str() == "S1 order [0, 2, 1]");
  plan.plain = true;
  CHECK(plan.str() == "plain order [0, 2, 1]");
}

TEST_CASE("comparison tells the worst element, NaN equals NaN and infinity itself") {
  CHECK(difference(values({1, kNan, kInf, -kInf}), values({1.05, kNan, kInf, -kInf}), 0.1).empty());
  CHECK(difference(values({1, 2, 3}), values({1.5, 4, 3}), 0.1) ==
        "at [1]: got 2, want 4, error 2, allowed 0.1 (2 of 3 elements wrong)");
  CHECK_FALSE(difference(values({kNan}), values({1}), 1e9).empty());
  CHECK_FALSE(difference(values({1}), values({kNan}), 1e9).empty());
  CHECK_FALSE(difference(values({kInf}), values({-kInf}), 1e9).empty());
  CHECK_FALSE(difference(values({kInf}), values({1}), 1e9).empty());
  CHECK(difference(Array::zeros({2, 3}, DType::F32), Array::zeros({3, 2}, DType::F32), 1) ==
        "has sizes [2, 3], want [3, 2]");
  CHECK(difference(values({1}, DType::F32), values({1}, DType::I64), 1) == "is f32, want i64");
  CHECK(difference(values({1}, DType::F64), values({1}, DType::F32), 0).empty());
  CHECK(difference(Array::zeros({0, 4}, DType::F32), Array::zeros({0, 4}, DType::F32), 0).empty());
  const Array grid = Array::from(std::vector<double>{0, 0, 0, 7, 0, 0}, {2, 3}, DType::F32);
  CHECK(difference(grid, Array::zeros({2, 3}, DType::F32), 0.5).find("at [1, 0]: got 7") == 0);
}

TEST_CASE("in float64 the allowed error follows the largest value or the stated tolerance") {
  CHECK(allowed_in_f64(values({-200, 3}), 1e-3) == Approx(2e-5));
  CHECK(allowed_in_f64(values({2, kInf, kNan}), 1e-2) == Approx(1e-6));
  CHECK(allowed_in_f64(values({}), 1.0) == Approx(1e-4));
}
