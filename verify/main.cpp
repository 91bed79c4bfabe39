// tessera-verify: case files under random meshes, placements and cuts.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <numeric>
#include <optional>

#include <CLI/CLI.hpp>

#include "comm/device_link.h"
#include "ops/plan_cache.h"
#include "runtime/device.h"
#include "runtime/error.h"
#include "train/command_line.h"
#include "train/program.h"
#include "verify/runner.h"

namespace tessera::verify {
namespace {

struct Arguments {
  RunnerOptions options;
  std::string mesh;
  std::string dtype = "f32";
  std::string device = "cpu";
  std::string comm;
  std::string plan_cache;
  std::optional<std::uint64_t> seed;
};

void declare(CLI::App& app, Arguments& a) {
  app.add_option("files", a.options.files, "case files, or folders of them")->required();
  app.add_option("--mesh", a.mesh, "sizes of the mesh axes, as 2x2 (default: drawn for every trial)");
  app.add_option("--seed", a.seed, "what trials are drawn from (default: TESSERA_SEED, else the clock)");
  app.add_option("--trials", a.options.trials, "trials a file; limits come on top")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  app.add_option("--dtype", a.dtype, "type of floating values")
      ->check(CLI::IsMember({"f32", "f64"}))
      ->capture_default_str();
  app.add_option("--device", a.device, "where to run")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--comm", a.comm, "how messages of device memory go (default: TESSERA_CUDA_COMM, else nccl)")
      ->check(CLI::IsMember({"nccl", "mpi"}));
  app.add_option("--plan-cache", a.plan_cache,
                 "with --device cuda: file in which cuDNN's plans are kept (default: TESSERA_CUDNN_PLANS)");
  app.add_option("--report", a.options.report, "writes one JSON line a trial to this file");
  app.add_option("--only-trial", a.options.only_trial,
                 "runs one trial of each file: its number, or limit<number>")
      ->check(CLI::Validator(
          [](std::string& text) {
            const std::string digits = text.starts_with("limit") ? text.substr(5) : text;
            const bool ok = !digits.empty() && digits.size() < 9 &&
                            digits.find_first_not_of("0123456789") == std::string::npos;
            return ok ? std::string() : "\"" + text + "\" was given, allowed are a number and limit<number>";
          },
          "TRIAL"));
}

// "2x2" -> {2, 2}; refuses what does not give exactly `ranks`.
std::vector<int> parse_mesh(const std::string& text, int ranks) {
  std::vector<int> sizes;
  std::string digits;
  for (const char c : text + "x") {
    if (c >= '0' && c <= '9' && digits.size() < 6) {
      digits += c;
      continue;
    }
    TS_CHECK(c == 'x' && !digits.empty(), "--mesh", "\"{}\" was given, allowed are sizes like 4 or 2x2",
             text);
    sizes.push_back(std::stoi(digits));
    digits.clear();
  }
  const std::int64_t product =
      std::accumulate(sizes.begin(), sizes.end(), std::int64_t{1}, std::multiplies<>());
  TS_CHECK(product == ranks, "--mesh", "{} has {} ranks, this run has {}", text, product, ranks);
  return sizes;
}

// Rank 0's choice counts: clocks differ.
std::uint64_t agreed_seed(const Communicator& world, const std::optional<std::uint64_t>& given) {
  std::uint64_t seed =
      static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  seed %= 1'000'000'007ULL;
  if (const char* text = std::getenv("TESSERA_SEED")) seed = std::strtoull(text, nullptr, 10);
  if (given) seed = *given;
  return std::stoull(world.all_gather_bytes(std::to_string(seed))[0]);
}

int run(const Communicator& world, Arguments& a) {
  RunnerOptions& o = a.options;
  o.device = device_from_name("--device", a.device);
  require_device("--device", o.device);
  select_device_of_rank(world, o.device);
  if (!a.plan_cache.empty()) {
    TS_CHECK(o.device != Device::Cpu, "--plan-cache", "device cpu keeps no plans");
    set_plan_cache(a.plan_cache);
  }
  if (!a.comm.empty()) {
    TS_CHECK(o.device != Device::Cpu, "--comm", "device cpu knows no such choice");
    use_device_links(world, a.comm == "nccl");
  }
  if (!a.mesh.empty()) o.mesh = parse_mesh(a.mesh, world.size());
  o.dtype = a.dtype == "f64" ? DType::F64 : DType::F32;
  o.seed = agreed_seed(world, a.seed);
  if (std::getenv("TESSERA_DEADLINE") != nullptr) o.trial_seconds = world.deadline();
  if (world.rank() == 0) {
    std::printf("%d rank%s, %s, seed %llu, %d trials a file\n", world.size(), world.size() == 1 ? "" : "s",
                a.dtype.c_str(), static_cast<unsigned long long>(o.seed), o.trials);
    std::fflush(stdout);
  }
  const RunnerTotals totals = run_cases(world, o);
  return totals.failed == 0 ? 0 : 1;
}

int run_program(Runtime& runtime, int argc, char** argv) {
  Arguments arguments;
  arguments.options.program = argv[0];
  CLI::App app(
      "Runs conformance cases split over ranks in random ways and compares with the expected values.",
      "tessera-verify");
  declare(app, arguments);
  if (const auto status = parse_command_line(app, argc, argv, runtime.world())) return *status;
  return run(runtime.world(), arguments);
}

}  // namespace
}  // namespace tessera::verify

int main(int argc, char** argv) { return tessera::run_program(argc, argv, &tessera::verify::run_program); }
