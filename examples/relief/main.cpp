// tessera-relief: a U-Net learns to sharpen the Earth's relief, the whole globe cut over the ranks.
#include <fmt/core.h>

#include "examples/maps/files.h"
#include "examples/maps/training.h"
#include "examples/relief/pictures.h"
#include "examples/relief/score.h"
#include "examples/relief/trainer.h"
#include "runtime/device.h"
#include "runtime/trace.h"
#include "train/program.h"
#include "train/sync.h"

namespace ts = tessera;
namespace maps = tessera::maps;
namespace relief = tessera::relief;

namespace {

void write_score(ts::train::MetricsWriter& metrics, const relief::Score& s, const char* where) {
  metrics.write("score", {{"name", s.name},
                          {"where", std::string(where)},
                          {"land_plain", s.land.plain},
                          {"land_weighted", s.land.weighted},
                          {"sea_plain", s.sea.plain},
                          {"sea_weighted", s.sea.weighted},
                          {"plain", s.all.plain},
                          {"weighted", s.all.weighted}});
}

// What is known without learning, and the model.
std::string scores(const relief::ReliefData& data, const ts::Tensor& model,
                   ts::train::MetricsWriter& metrics) {
  const std::vector<std::pair<const char*, ts::Tensor>> guesses{{"means of the coarse blocks", data.blocks()},
                                                                {"bicubic interpolation", data.base()},
                                                                {"the model", model}};
  std::vector<relief::Score> held_out;
  for (const auto& [name, heights] : guesses) {
    held_out.push_back(relief::score_of(name, data, heights, relief::Where::HeldOut));
    write_score(metrics, held_out.back(), "held out");
    write_score(metrics, relief::score_of(name, data, heights, relief::Where::Training), "training");
  }
  return relief::score_table(held_out);
}

int run(ts::Runtime& runtime, int argc, char** argv) {
  const ts::Communicator& world = runtime.world();
  relief::Settings s;
  ts::train::Config config(relief::kProgram, "Trains a U-Net to sharpen a coarse map of the Earth's relief.");
  relief::register_settings(config, s);
  if (maps::read_settings(world, config, {relief::kProgram, argc, argv}, [&] { relief::check_settings(s); }))
    return 0;
  if (!s.trace.empty()) ts::trace_start(s.trace);
  maps::set_up_device(world, s);
  const ts::DeviceMesh mesh = maps::make_mesh(world, s.mesh);
  const std::string path = maps::find_on_all(world, relief::kProgram, s.data_path, relief::kReliefFile);
  const relief::ReliefSource source = relief::source_of(s, path);
  const maps::MapCut cut = maps::cut_map(relief::kProgram, mesh, relief::read_map_shape(source, world));
  const relief::ReliefData data(source, cut, world);
  const relief::LonLatBox& region = source.held_out[static_cast<std::size_t>(s.region)];
  relief::check_region(data, region);
  ts::train::MetricsWriter metrics(world, s.out + "/metrics.jsonl");
  metrics.write_json("config", "config", config.json());

  relief::Trainer trainer(s, data);
  const bool first = world.rank() == 0;
  if (first)
    fmt::print("{}: {} parameters, mesh {}, {} ranks, map {} x {}, coarse map {} x {}\n", relief::kProgram,
               trainer.model().num_parameters(), mesh.str(), world.size(), cut.shape.rows, cut.shape.cols,
               cut.shape.rows / s.coarsen, cut.shape.cols / s.coarsen);
  maps::run_steps(world, {s.steps, s.every, 1, s.out, ts::device_from_name(relief::kProgram, s.device)},
                  metrics, [&] { return trainer.step(); });
  if (s.check_replicas) ts::train::check_replicas(trainer.model(), mesh);

  const ts::Tensor model = trainer.heights();
  const std::string table = scores(data, model, metrics);
  relief::write_region(s.out + "/region.dat", first, data, region, model);
  if (first) fmt::print("\nRoot-mean-square error in the held-out regions, m\n\n{}", table);
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return ts::run_program(argc, argv, run); }
