// The runner itself: what it counts, what its lines say, and that no fault of one rank derails the others.
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>
#include <fstream>

#include "ops/op.h"
#include "tests/support/world.h"
#include "verify/case.h"
#include "verify/runner.h"
#include "verify/safetensors.h"

using namespace tessera;
using namespace tessera::verify;
using Catch::Contains;

namespace {

std::string case_path(const std::string& name) {
  return std::string(TESSERA_CASES_DIR) + "/" + name + ".safetensors";
}

// A case changed by `change`, as a file that all ranks see and that goes at the end.
class ChangedCase {
 public:
  template <class F>
  ChangedCase(const std::string& name, F&& change) {
    const std::string id = test_world().all_gather_bytes(std::to_string(::getpid()))[0];
    path_ = (std::filesystem::temp_directory_path() / (id + "_" + name + ".safetensors")).string();
    Case c = load_case(case_path(name));
    change(c);
    if (test_world().rank() == 0) save_case(c, path_);
    test_world().barrier();
  }
  ~ChangedCase() {
    test_world().barrier();
    if (test_world().rank() == 0) std::filesystem::remove(path_);
  }
  ChangedCase(const ChangedCase&) = delete;
  ChangedCase& operator=(const ChangedCase&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Limits add trials for some numbers of ranks.
void drop_limits(Case& c) { c.limits.clear(); }

struct Result {
  RunnerTotals totals;
  std::vector<std::string> lines;  // rank 0's, the same on every rank here
};

Result run(RunnerOptions o) {
  Result r;
  if (o.seed == 0) o.seed = test_seed();
  o.print = [&r](const std::string& line) { r.lines.push_back(line); };
  r.totals = run_cases(test_world(), o);
  std::string joined;
  for (const std::string& line : r.lines) joined += line + "\n";
  const std::string all = test_world().all_gather_bytes(joined)[0];
  r.lines.clear();
  for (std::size_t at = 0, end = 0; (end = all.find('\n', at)) != std::string::npos; at = end + 1)
    r.lines.push_back(all.substr(at, end - at));
  return r;
}
Result run(const std::string& file, int trials) { return run({.files = {file}, .trials = trials}); }

// Element `at` of an array, replaced.
void set_element(Array& a, std::int64_t at, double value) {
  std::vector<double> v = a.to_vector();
  v[static_cast<std::size_t>(at)] = value;
  a = Array::from(v, a.sizes(), a.dtype());
}

void require_all_fail(const Result& r, int trials, const std::string& text) {
  REQUIRE(r.totals.failed == trials);
  REQUIRE(r.totals.passed == 0);
  REQUIRE(r.lines.size() == static_cast<std::size_t>(trials) + 1);
  for (int t = 0; t < trials; ++t) {
    CHECK_THAT(r.lines[static_cast<std::size_t>(t)], Contains(text));
    CHECK_THAT(r.lines[static_cast<std::size_t>(t)], Contains("trial " + std::to_string(t)));
  }
  CHECK(r.lines.back() == "0 passed, " + std::to_string(trials) + " failed");
}

}  // namespace

TEST_CASE("right cases pass, in both types, and totals count trials") {
  Result r = run(case_path("kink_clamp"), 5);
  CHECK(r.lines == std::vector<std::string>{"5 passed, 0 failed"});
  r = run({.files = {case_path("mean_of_nothing"), case_path("program_vision_transformer_step")},
           .trials = 2,
           .dtype = DType::F64});
  CHECK(r.lines == std::vector<std::string>{"4 passed, 0 failed"});
}

TEST_CASE("a wrong output, gradient or second gradient fails with the element and the way to run it again") {
  const ChangedCase output("kink_clamp", [](Case& c) { set_element(c.outputs.at("y"), 1, 77.0); });
  Result r = run(output.path(), 3);
  require_all_fail(r, 3, "out.y at [0, 1]: got ");
  CHECK_THAT(r.lines[0], Contains("want 77"));
  CHECK_THAT(r.lines[0], Contains("allowed "));
  CHECK_THAT(r.lines[0], Contains("mesh "));
  CHECK_THAT(r.lines[0], Contains("in.x "));
  CHECK_THAT(r.lines[0], Contains("--seed " + std::to_string(test_seed())));
  CHECK_THAT(r.lines[0], Contains("--only-trial 0 " + output.path()));
  const Result again = run({.files = {output.path()}, .only_trial = "2"});
  REQUIRE(again.lines.size() == 2);
  CHECK(again.lines[0] == r.lines[2]);

  const ChangedCase gradient("kink_clamp", [](Case& c) { set_element(c.gradients.at("x"), 0, 77.0); });
  require_all_fail(run(gradient.path(), 3), 3, "grad.x at [0, 0]: got ");
  const ChangedCase second("conv2d_circular", [](Case& c) {
    c.limits.clear();
    set_element(c.second_gradients.at("w"), 0, 1e6);
  });
  require_all_fail(run(second.path(), 2), 2, "grad2.w at [0, 0, 0, 0]: got ");
  const ChangedCase sizes("kink_clamp", [](Case& c) {
    c.outputs["y"] = Array::zeros({2}, DType::F32);
    c.cotangents["y"] = Array::zeros({2}, DType::F32);
  });
  CHECK(run(sizes.path(), 3).totals.failed == 3);
}

TEST_CASE("an op, a mode or an argument that the library lacks fails by name") {
  const ChangedCase op("kink_clamp", [](Case& c) { c.program[0].op = "frobnicate"; });
  require_all_fail(run(op.path(), 3), 3, "this library has no op \"frobnicate\"");
  const ChangedCase mode("conv2d_circular", [](Case& c) {
    c.limits.clear();
    c.program[0].args["padding_mode"] = "mirror";
  });
  require_all_fail(run(mode.path(), 2), 2, "padding_mode \"mirror\" is not in this library");
  const ChangedCase argument("kink_clamp", [](Case& c) { c.program[0].op = "softmax"; });
  require_all_fail(run(argument.path(), 2), 2, "softmax: argument \"dim\" is missing");
}

TEST_CASE("a limit that is exceeded fails its trial alone, on its number of ranks alone") {
  const ChangedCase tampered("conv2d_circular", [](Case& c) {
    for (Limit& limit : c.limits) limit.max_forward_bytes = 1;
  });
  const int ranks = test_world().size();
  const Result r = run(tampered.path(), 2);
  const bool limited = ranks == 2 || ranks == 3;
  CHECK(r.totals.passed == 2);
  CHECK(r.totals.failed == (limited ? 1 : 0));
  if (!limited) return;
  CHECK_THAT(r.lines[0],
             Contains("forward sent ") && Contains("bytes, allowed 1 ") && Contains("trial limit"));
  const Result alone = run({.files = {tampered.path()}, .only_trial = ranks == 2 ? "limit0" : "limit1"});
  CHECK(alone.lines[0] == r.lines[0]);
  CHECK(alone.totals.passed == 0);
  // The same limit as it was holds, and float64 may send twice as much.
  CHECK(run(case_path("conv2d_circular"), 0).totals.passed == 1);
  CHECK(run({.files = {case_path("conv2d_circular")}, .trials = 0, .dtype = DType::F64}).totals.passed == 1);
}

TEST_CASE("a file that cannot be read is one failure, and the others still run") {
  const std::string missing = case_path("no_such_case");
  const Result r = run({.files = {missing, case_path("kink_clamp")}, .trials = 2});
  REQUIRE(r.lines.size() == 2);
  CHECK_THAT(r.lines[0], Contains("cannot open " + missing));
  CHECK(r.lines[1] == "2 passed, 1 failed");
}

TEST_CASE("a rank that fails alone is told apart, and the next trials are in step again") {
  const int last = test_world().size() - 1;
  int calls = 0;
  register_op_handler("sum", [&](const OpDef&, std::span<const Tensor>, Tensors&) {
    if (++calls == 1 && test_world().rank() == last) throw std::runtime_error("out of luck");
    return false;
  });
  // An output that must be gathered: the other ranks wait for the one that is gone.
  const ChangedCase summed("sum_all", drop_limits);
  const Result r =
      run({.files = {summed.path(), case_path("kink_clamp")}, .trials = 3, .trial_seconds = 1.0});
  remove_op_handler("sum");
  CHECK(r.totals.failed <= 1);  // a trial whose tensors are all plain may not come to the handler
  CHECK(r.totals.passed == 6 - r.totals.failed);
  if (r.totals.failed == 1) CHECK_THAT(r.lines[0], Contains("out of luck"));
  if (r.totals.failed == 1 && last > 0) CHECK_THAT(r.lines[0], Contains("rank 0"));
}

TEST_CASE("inputs lie in memory in many orders") {
  int row_major = 0;
  int others = 0;
  register_op_handler("instance_norm", [&](const OpDef&, std::span<const Tensor> in, Tensors&) {
    ++(in[0].local().is_contiguous() ? row_major : others);
    return false;
  });
  const ChangedCase volume("instance_norm_volume", drop_limits);
  const Result r = run(volume.path(), 30);
  remove_op_handler("instance_norm");
  CHECK(r.totals.failed == 0);
  CHECK(row_major > 2);
  CHECK((others > 2 || test_world().size() > 3));  // parts may be too small to tell
}

TEST_CASE("the report has one JSON line a trial") {
  const std::string id = test_world().all_gather_bytes(std::to_string(::getpid()))[0];
  const std::string path = (std::filesystem::temp_directory_path() / (id + "_report.jsonl")).string();
  run({.files = {case_path("conv2d_circular")}, .trials = 3, .report = path});
  test_world().barrier();
  std::ifstream in(path);
  std::size_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    const auto j = nlohmann::json::parse(line);
    CHECK(j.at("case") == "conv2d_circular");
    CHECK(j.at("passed") == true);
    CHECK(j.at("messages").get<int>() >= 0);
    CHECK(j.at("peak_live_bytes").size() == static_cast<std::size_t>(test_world().size()));
    CHECK(j.at("peak_live_bytes")[0].get<std::int64_t>() > 0);
    if (test_world().size() == 1) CHECK(j.at("bytes_forward") == 0);
    if (j.contains("max_forward_bytes")) CHECK(j.at("bytes_forward").get<std::int64_t>() > 0);
  }
  const int ranks = test_world().size();
  CHECK(count == (ranks == 2 || ranks == 3 ? 4U : 3U));
  test_world().barrier();
  if (test_world().rank() == 0) std::filesystem::remove(path);
  CHECK_THROWS_WITH(run({.files = {}, .report = "no/such/folder/r"}), Contains("cannot write the report"));
}
