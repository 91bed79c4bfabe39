// tessera-bench: what things cost, beside what they are compared with, in one run.
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/device.h"
#include "bench/groups.h"
#include "comm/device_link.h"
#include "ops/plan_cache.h"
#include "runtime/error.h"
#include "train/command_line.h"
#include "train/program.h"

namespace tessera::bench {
namespace {

enum class Where : std::uint8_t { Cpu, Device, Both };
struct Group {
  const char* name;
  const char* what;
  void (*run)(const Settings&, Report&);
  Where where = Where::Cpu;
  int ranks = 1;  // and more

  bool runs_on(Device device) const {
    return where == Where::Both || (where == Where::Device) == (device != Device::Cpu);
  }
};

constexpr Group kGroups[] = {
    {"overhead", "sharded ops that need no message, over the plain ops (tiny tensors)", &overhead,
     Where::Both},
    {"sending", "what the host spends on calls that send from device to device (tiny tensors)", &sending,
     Where::Device, 2},
    {"recut", "redistribute against a bare MPI_Alltoallv, with packing by hand where it is needed", &recut},
    {"halo_conv", "convolutions cut along a spatial dim, over the same local convolutions", &halo_conv},
    {"halo_windows", "pools and interpolation cut along rows, over the same local operation", &halo_windows},
    {"ring", "ring attention, over local attention with the same work", &ring},
    {"vit_step", "a training step of a ViT: plain on one rank, cut along the height on several", &vit_step,
     Where::Both},
    {"conv_step", "a training step of a convolution network, likewise", &conv_step, Where::Both},
    {"vit_scaling", "the same cut step beside the uncut model on every rank at once", &vit_scaling},
    {"winds_step", "a training step of the model that tessera-winds trains", &winds_step},
    {"points", "nearest neighbours in a cut cloud, over a plain search of as many queries", &points},
    {"kernels", "local kernels, in GF/s and GB/s", &kernels},
    {"device_kernels", "convolutions, products, attention on a device, over bare cuDNN and cuBLASLt",
     &device_kernels, Where::Device},
};

struct Arguments {
  bool list = false;
  std::vector<std::string> only;
  std::string json;
  int repeats = Settings{}.repeats;
  bool quick = false;
  std::string match;
  std::string device = "cpu";
  std::string comm;
  std::string plan_cache;
};

void declare(CLI::App& app, Arguments& a) {
  std::vector<std::string> names;
  for (const Group& g : kGroups) names.emplace_back(g.name);
  app.add_flag("--list", a.list, "says what there is, and measures nothing");
  app.add_option("groups,--only", a.only, "these groups only")->check(CLI::IsMember(names));
  app.add_option("--device", a.device, "where tensors live")
      ->check(CLI::IsMember({"cpu", "cuda"}))
      ->capture_default_str();
  app.add_option("--comm", a.comm, "how messages of device memory go (default: TESSERA_CUDA_COMM, else nccl)")
      ->check(CLI::IsMember({"nccl", "mpi"}));
  app.add_option("--plan-cache", a.plan_cache,
                 "with --device cuda: file in which cuDNN's plans are kept (default: TESSERA_CUDNN_PLANS)");
  app.add_option("--repeats", a.repeats, "how often each variant is timed; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", a.json, "writes one JSON line a variant to this file");
  app.add_option("--match", a.match,
                 "of the groups kernels and overhead only the cases that contain this text");
  app.add_flag("--quick", a.quick,
               "2 repeats and smaller shapes: shows in seconds that all of it runs, not what it costs");
}

bool is_chosen(const Group& g, const Arguments& a) {
  return std::find(a.only.begin(), a.only.end(), g.name) != a.only.end();
}

void check_groups(const Arguments& a, const Communicator& world, Device device) {
  for (const Group& g : kGroups) {
    if (!is_chosen(g, a)) continue;
    TS_CHECK(g.runs_on(device), "--only", "{} does not run on device {}", g.name, a.device);
    TS_CHECK(world.size() >= g.ranks, "--only", "{} needs {} ranks or more, this run has {}", g.name, g.ranks,
             world.size());
  }
}

int measure(const Communicator& world, const Arguments& a) {
  const Device device = device_from_name("--device", a.device);
  if (a.list) {
    for (const Group& g : kGroups)
      if (world.rank() == 0 && g.runs_on(device) && world.size() >= g.ranks)
        fmt::print("{:<16}{}\n", g.name, g.what);
    return 0;
  }
  Settings settings;
  settings.world = world;
  settings.device = device;
  require_device("--device", settings.device);
  check_groups(a, world, settings.device);
  if (!a.plan_cache.empty()) {
    TS_CHECK(settings.device != Device::Cpu, "--plan-cache", "device cpu keeps no plans");
    set_plan_cache(a.plan_cache);
  }
  if (settings.device != Device::Cpu) check_plan_cache(world);
  if (!a.comm.empty()) {
    TS_CHECK(settings.device != Device::Cpu, "--comm", "device cpu knows no such choice");
    use_device_links(world, a.comm == "nccl");
  }
  settings.repeats = a.repeats;
  settings.quick = a.quick;
  settings.match = a.match;
  Report report(world, a.json, device);
  if (world.rank() == 0) fmt::print("{}\n", machine_line(world));
  if (world.rank() == 0 && settings.device != Device::Cpu) fmt::print("{}\n", device_line());
  for (const Group& g : kGroups)
    if (is_chosen(g, a) || (a.only.empty() && g.runs_on(settings.device) && world.size() >= g.ranks))
      g.run(settings, report);
  TS_CHECK(a.match.empty() || !report.is_empty(), "--match", "no case of {} contains \"{}\"",
           fmt::join(a.only, ", "), a.match);
  report.summary();
  return 0;
}

int run(Runtime& runtime, int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Measures Tessera beside what it is compared with. A ratio is the best time of a variant over that of "
      "the first one of its case; start under mpirun for more than one rank.",
      "tessera-bench");
  declare(app, arguments);
  if (const auto status = parse_command_line(app, argc, argv, runtime.world())) return *status;
  return measure(runtime.world(), arguments);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::run_program(argc, argv, &tessera::bench::run); }
