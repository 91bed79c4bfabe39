// tessera-winds: a vision transformer learns next month's surface wind, one map cut over the ranks.
#include <fmt/core.h>

#include <filesystem>

#include "examples/winds/pictures.h"
#include "examples/winds/trainer.h"
#include "runtime/allocator.h"
#include "runtime/trace.h"
#include "train/metrics.h"
#include "train/program.h"
#include "train/sync.h"

namespace ts = tessera;
namespace winds = tessera::winds;

namespace {

ts::DeviceMesh make_mesh(const ts::Communicator& world, const winds::Settings& s) {
  std::vector<ts::MeshAxis> axes;
  for (const auto& [name, size] : s.mesh) axes.push_back({name, size});
  if (axes.empty()) axes.push_back({"domain", world.size()});
  return {world, axes};
}

// The loss as columns for gnuplot.
class LossColumns {
 public:
  LossColumns(bool write, const std::string& path) : file_(write ? std::fopen(path.c_str(), "w") : nullptr) {
    if (file_ != nullptr) fmt::print(file_, "# step loss smoothed_loss learning_rate\n");
  }
  ~LossColumns() {
    if (file_ != nullptr) std::fclose(file_);
  }
  LossColumns(const LossColumns&) = delete;
  LossColumns& operator=(const LossColumns&) = delete;
  void add(std::int64_t step, const winds::StepResult& r) {
    constexpr double kKeep = 0.9;
    smooth_ = step == 1 ? r.loss : kKeep * smooth_ + (1 - kKeep) * r.loss;
    if (file_ != nullptr) fmt::print(file_, "{} {:.6g} {:.6g} {:.6g}\n", step, r.loss, smooth_, r.lr);
  }

 private:
  std::FILE* file_;
  double smooth_ = 0;
};

void train(winds::Trainer& trainer, const winds::Settings& s, const ts::Communicator& world,
           ts::train::MetricsWriter& metrics) {
  const bool first = world.rank() == 0;
  LossColumns columns(first, s.out + "/loss.dat");
  ts::train::Progress progress({s.steps, s.every, stdout, first, ts::train::Progress::is_terminal(stdout)});
  for (int step = 1; step <= s.steps; ++step) {
    const winds::StepResult r = trainer.step();
    ts::train::StepReport report;
    report.step = step;
    report.loss = r.loss;
    report.samples = s.batch;
    report.peak_bytes = ts::allocator_stats(ts::Device::Cpu).peak_live_bytes;
    report.comm_seconds = world.recorder().totals().seconds;
    const ts::train::StepRates rates = progress.update(report);
    columns.add(step, r);
    metrics.write("step", {{"step", std::int64_t{step}},
                           {"loss", r.loss},
                           {"lr", r.lr},
                           {"seconds", rates.seconds},
                           {"samples_per_second", rates.samples_per_second},
                           {"peak_bytes", report.peak_bytes},
                           {"comm_share", rates.comm_share},
                           {"comm_bytes", world.recorder().totals().bytes}});
  }
  progress.finish();
}

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
  ts::train::Config config("tessera-winds",
                           "Trains a vision transformer to predict next month's surface wind.");
  winds::register_settings(config, s);
  std::string failure;
  bool help = false;
  try {
    help = config.parse(argc, argv);
    winds::check_settings(s);
  } catch (const ts::Error& e) {
    failure = e.message().substr(e.op().size() + 2);  // agree() names the program again
  }
  ts::agree(world, "tessera-winds", failure);
  const bool first = world.rank() == 0;
  if (help) {
    if (first) fmt::print("{}", config.help());
    return 0;
  }
  if (!s.trace.empty()) ts::trace_start(s.trace);
  const ts::DeviceMesh mesh = make_mesh(world, s);
  winds::WindSource source;
  source.held_out = s.held_out;
  std::string missing;
  try {
    source.path = winds::find_wind_file(s.data_path);
  } catch (const ts::Error& e) {
    missing = e.message();
  }
  ts::agree(world, "tessera-winds", missing);
  const winds::GridShape grid = winds::read_grid_shape(source, world);
  const winds::MapCut cut = winds::cut_map(mesh, grid, s.patch);
  const winds::WindData data(source, cut.region, world, cut.domain.comm());
  const auto& tests = data.test_months();
  TS_CHECK(std::find(tests.begin(), tests.end(), s.month) != tests.end(), "tessera-winds",
           "month {} is not held out; {} to {} are", s.month, tests.front(), tests.back());
  ts::train::MetricsWriter metrics(world, s.out + "/metrics.jsonl");
  metrics.write_json("config", "config", config.json());

  winds::Trainer trainer(s, cut, data);
  if (first)
    fmt::print("tessera-winds: {} parameters, mesh {}, {} ranks, map {} x {}\n",
               trainer.model().num_parameters(), mesh.str(), world.size(), grid.rows, grid.cols);
  train(trainer, s, world, metrics);
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
