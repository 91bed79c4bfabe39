#include "examples/maps/training.h"

#include <fmt/core.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

#include "runtime/allocator.h"
#include "runtime/error.h"

namespace tessera::maps {
namespace {

// Written by rank 0, as metrics are: all ranks refuse a file that cannot be opened, rank 0 ends the job if a
// line cannot be written.
class LossColumns {
 public:
  LossColumns(const Communicator& world, std::string path) : path_(std::move(path)) {
    std::string failure;
    if (world.rank() == 0) {
      file_.reset(std::fopen(path_.c_str(), "w"));
      if (!file_) failure = fault();
    }
    agree(world, kOp, failure);
    write("# step loss smoothed_loss learning_rate\n");
  }
  void add(std::int64_t step, const StepResult& r) {
    constexpr double kKeep = 0.9;
    smooth_ = step == 1 ? r.loss : kKeep * smooth_ + (1 - kKeep) * r.loss;
    write(fmt::format("{} {:.6g} {:.6g} {:.6g}\n", step, r.loss, smooth_, r.lr));
  }

 private:
  static constexpr const char* kOp = "loss";
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string fault() const {
    return fmt::format("file '{}' cannot be written: {}", path_, std::strerror(errno));
  }
  void write(const std::string& line) {
    if (!file_) return;
    if (std::fputs(line.c_str(), file_.get()) < 0 || std::fflush(file_.get()) != 0)
      TS_FAIL(Io, kOp, "{}", fault());
  }

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  double smooth_ = 0;
};

}  // namespace

bool read_settings(const Communicator& world, train::Config& config, const Arguments& a,
                   const std::function<void()>& check) {
  std::string failure;
  bool help = false;
  try {
    help = config.parse(a.argc, a.argv);
    check();
  } catch (const Error& e) {
    failure = e.message().substr(e.op().size() + 2);  // agree() names the program again
  }
  agree(world, a.program, failure);
  config.check_same(world);
  if (help && world.rank() == 0) fmt::print("{}", config.help());
  return help;
}

void run_steps(const Communicator& world, const LoopOptions& options, train::MetricsWriter& metrics,
               const std::function<StepResult()>& step) {
  const bool first = world.rank() == 0;
  LossColumns columns(world, options.folder + "/loss.dat");
  train::Progress progress(
      {options.steps, options.every, stdout, first, train::Progress::is_terminal(stdout)});
  for (int i = 1; i <= options.steps; ++i) {
    const StepResult r = step();
    train::StepReport report;
    report.step = i;
    report.loss = r.loss;
    report.samples = options.samples;
    report.peak_bytes = allocator_stats(options.device).peak_live_bytes;
    report.comm_seconds = world.recorder().totals().seconds;
    const train::StepRates rates = progress.update(report);
    columns.add(i, r);
    metrics.write("step", {{"step", std::int64_t{i}},
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

}  // namespace tessera::maps
