// tessera-bench: what things cost, beside what they are compared with, in one run.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "bench/groups.h"
#include "runtime/error.h"
#include "train/program.h"

namespace tessera::bench {
namespace {

struct Group {
  const char* name;
  const char* what;
  void (*run)(const Settings&, Report&);
};

constexpr Group kGroups[] = {
    {"overhead", "sharded ops that need no message, over the plain ops (tiny tensors)", &overhead},
    {"recut", "redistribute against a bare MPI_Alltoallv, with packing by hand where it is needed", &recut},
    {"halo_conv", "convolutions cut along a spatial dim, over the same local convolutions", &halo_conv},
    {"ring", "ring attention, over local attention with the same work", &ring},
    {"vit_step", "a training step of a ViT: plain on one rank, cut along the height on several", &vit_step},
    {"conv_step", "a training step of a convolution network, likewise", &conv_step},
    {"vit_scaling", "the same cut step beside the uncut model on every rank at once", &vit_scaling},
    {"winds_step", "a training step of the model that tessera-winds trains", &winds_step},
    {"points", "nearest neighbours in a cut cloud, over a plain search of as many queries", &points},
    {"kernels", "local kernels, in GF/s and GB/s", &kernels},
};

struct Arguments {
  bool list = false;
  std::vector<std::string> only;
  std::string json;
  int repeats = Settings{}.repeats;
  bool quick = false;
  std::string match;
};

void declare(CLI::App& app, Arguments& a) {
  std::vector<std::string> names;
  for (const Group& g : kGroups) names.emplace_back(g.name);
  app.add_flag("--list", a.list, "says what there is, and measures nothing");
  app.add_option("--only", a.only, "these groups only")->check(CLI::IsMember(names));
  app.add_option("--repeats", a.repeats, "how often each variant is timed; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app.add_option("--json", a.json, "writes one JSON line a variant to this file");
  app.add_option("--match", a.match, "of the group kernels only the cases that contain this text");
  app.add_flag("--quick", a.quick,
               "2 repeats and smaller shapes: shows in seconds that all of it runs, not what it costs");
}

int measure(const Communicator& world, const Arguments& a) {
  if (a.list) {
    for (const Group& g : kGroups)
      if (world.rank() == 0) fmt::print("{:<14}{}\n", g.name, g.what);
    return 0;
  }
  Settings settings;
  settings.world = world;
  settings.repeats = a.repeats;
  settings.quick = a.quick;
  settings.match = a.match;
  Report report(world, a.json);
  if (world.rank() == 0) fmt::print("{}\n", machine_line(world));
  for (const Group& g : kGroups)
    if (a.only.empty() || std::find(a.only.begin(), a.only.end(), g.name) != a.only.end())
      g.run(settings, report);
  return 0;
}

int run(Runtime& runtime, int argc, char** argv) {
  Arguments arguments;
  CLI::App app(
      "Measures Tessera beside what it is compared with. A ratio is the best time of a variant over that of "
      "the first one of its case; start under mpirun for more than one rank.",
      "tessera-bench");
  declare(app, arguments);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return (runtime.rank() == 0 ? app.exit(e) : e.get_exit_code()) == 0 ? 0 : 1;
  }
  return measure(runtime.world(), arguments);
}

}  // namespace
}  // namespace tessera::bench

int main(int argc, char** argv) { return tessera::run_program(argc, argv, &tessera::bench::run); }
