// tessera-winds: a vision transformer learns next month's surface wind, one map cut over the ranks.
#include <fmt/core.h>

#include <algorithm>

#include "examples/maps/files.h"
#include "examples/maps/training.h"
#include "examples/winds/pictures.h"
#include "examples/winds/trainer.h"
#include "runtime/device.h"
#include "runtime/trace.h"
#include "train/metrics.h"
#include "train/program.h"
#include "train/sync.h"

namespace ts = tessera;
namespace maps = tessera::maps;
namespace winds = tessera::winds;

namespace {

constexpr const char* kProgram = "tessera-winds";

void draw_map(winds::Trainer& trainer, const winds::WindData& data, const winds::Settings& s, bool first,
              const std::string& wind_file) {
  const int month = s.month;
  const ts::Array forecast =
      trainer.whole_map(trainer.forecast(std::span(&month, 1)).slice(0, 0, 1).squeeze(0));
  ts::Array own = ts::Array::empty({2, data.rows(), data.cols()}, ts::DType::F64);
  for (int c = 0; c < 2; ++c) {
    const auto wind = data.wind(month, c);
    std::copy(wind.begin(), wind.end(), own.data<double>() + c * data.cells());
  }
  const ts::Array truth = trainer.whole_map(own);
  if (!first) return;
  winds::write_map(s.out + "/map.dat", data, truth, forecast);
  winds::write_relief(s.out + "/relief.dat", wind_file);
}

int run(ts::Runtime& runtime, int argc, char** argv) {
  const ts::Communicator& world = runtime.world();
  winds::Settings s;
  ts::train::Config config(kProgram, "Trains a vision transformer to predict next month's surface wind.");
  winds::register_settings(config, s);
  if (maps::read_settings(world, config, {kProgram, argc, argv}, [&] { winds::check_settings(s); })) return 0;
  const bool first = world.rank() == 0;
  if (!s.trace.empty()) ts::trace_start(s.trace);
  maps::set_up_device(world, s);
  const ts::DeviceMesh mesh = maps::make_mesh(world, s.mesh);
  winds::WindSource source;
  source.held_out = s.held_out;
  source.path = maps::find_on_all(world, kProgram, s.data_path, winds::kWindFile);
  const winds::GridShape grid = winds::read_grid_shape(source, world);
  winds::check_batch(s, grid);
  const winds::MapCut cut = winds::cut_map(mesh, grid, s.patch);
  const winds::WindData data(source, cut.region, world, cut.domain.comm());
  const auto& tests = data.test_months();
  TS_CHECK(std::find(tests.begin(), tests.end(), s.month) != tests.end(), kProgram,
           "month {} is not held out; {} to {} are", s.month, tests.front(), tests.back());
  ts::train::MetricsWriter metrics(world, s.out + "/metrics.jsonl");
  metrics.write_json("config", "config", config.json());

  winds::Trainer trainer(s, cut, data);
  if (first)
    fmt::print("tessera-winds: {} parameters, mesh {}, {} ranks, map {} x {}\n",
               trainer.model().num_parameters(), mesh.str(), world.size(), grid.rows, grid.cols);
  maps::run_steps(world, {s.steps, s.every, s.batch, s.out, ts::device_from_name(kProgram, s.device)},
                  metrics, [&] { return trainer.step(); });
  if (s.check_replicas) ts::train::check_replicas(trainer.model(), mesh);

  std::vector<winds::Score> scores = winds::baseline_scores(data);
  scores.push_back(trainer.score());
  for (const winds::Score& score : scores)
    metrics.write("score", {{"name", score.name}, {"plain", score.plain}, {"weighted", score.weighted}});
  draw_map(trainer, data, s, first, source.path);
  if (first)
    fmt::print("\nRoot-mean-square error on the last {} months, m/s\n\n{}", s.held_out,
               winds::score_table(scores));
  return 0;
}

}  // namespace

int main(int argc, char** argv) { return ts::run_program(argc, argv, run); }
