#include "train/metrics.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "runtime/error.h"

namespace tessera::train {
namespace {

constexpr const char* kOp = "metrics";
// Long enough to smooth the noise of a shared machine, short enough to follow a change.
constexpr double kMemory = 20.0;

}  // namespace

std::string metrics_line(const std::string& kind, const MetricFields& fields) {
  nlohmann::ordered_json line;
  line["kind"] = kind;
  for (const auto& [name, value] : fields) {
    std::visit([&, &key = name](const auto& v) { line[key] = v; }, value);  // non-finite doubles dump as null
  }
  return line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

MetricsWriter::MetricsWriter(const Communicator& comm, const std::string& path) : path_(path) {
  std::string failure;
  if (comm.rank() == 0) {
    std::error_code ignored;  // opening the file tells
    const auto folder = std::filesystem::path(path).parent_path();
    if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
    std::FILE* file = std::fopen(path.c_str(), "w");
    if (file != nullptr) {
      file_ = {file, std::fclose};
    } else {
      failure = fmt::format("file '{}' cannot be written: {}", path, std::strerror(errno));
    }
  }
  agree(comm, kOp, failure);
}

void MetricsWriter::write(const std::string& kind, const MetricFields& fields) {
  if (file_) write_line(metrics_line(kind, fields));
}

void MetricsWriter::write_json(const std::string& kind, const std::string& name, const std::string& json) {
  if (file_) write_line(fmt::format("{{\"kind\":\"{}\",\"{}\":{}}}", kind, name, json));
}

void MetricsWriter::write_line(const std::string& line) {
  const bool written = std::fputs((line + "\n").c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0;
  if (!written) TS_FAIL(Io, kOp, "file '{}' cannot be written: {}", path_, std::strerror(errno));
}

Progress::Progress(const Options& options) : options_(options), last_(now()) {}

double Progress::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

bool Progress::is_terminal(std::FILE* file) {
  // Open MPI gives every rank a pseudo-terminal, whatever the launcher writes to: there only the caller
  // knows.
  const char* told = std::getenv("TESSERA_TTY");
  if (told != nullptr) return std::string_view(told) == "1";
  return std::getenv("OMPI_COMM_WORLD_SIZE") == nullptr && ::isatty(::fileno(file)) == 1;
}

StepRates Progress::update(const StepReport& report, double now) {
  StepRates rates;
  rates.seconds = std::max(now - last_, 1e-9);
  const double fade = std::exp(-1.0 / kMemory);
  const double comm = std::max(report.comm_seconds - last_comm_, 0.0);
  last_ = now;
  last_comm_ = report.comm_seconds;
  weight_ = weight_ * fade + 1.0;
  seconds_ = seconds_ * fade + rates.seconds;
  samples_ = samples_ * fade + static_cast<double>(report.samples);
  comm_ = comm_ * fade + comm;
  rates.samples_per_second = samples_ / seconds_;
  rates.comm_share = std::min(comm_ / seconds_, 1.0);
  rates.eta_seconds =
      static_cast<double>(std::max<std::int64_t>(options_.total_steps - report.step, 0)) * seconds_ / weight_;
  if (!options_.print) return rates;
  const bool due = report.step == 1 || report.step == options_.total_steps ||
                   (options_.every > 0 && report.step % options_.every == 0);
  if (options_.in_place) {
    // Back to the start of the line, and clear what a longer line left behind.
    fmt::print(options_.out, "\r{}\x1b[K", progress_line(report, rates, options_.total_steps));
    open_line_ = true;
    if (report.step == options_.total_steps) finish();
  } else if (due) {
    fmt::print(options_.out, "{}\n", progress_line(report, rates, options_.total_steps));
  }
  std::fflush(options_.out);
  return rates;
}

void Progress::finish() {
  if (open_line_) fmt::print(options_.out, "\n");
  open_line_ = false;
}

std::string progress_line(const StepReport& report, const StepRates& rates, std::int64_t total_steps) {
  const std::string total = fmt::format("{}", total_steps);
  return fmt::format("step {:>{}}/{}  loss {:.4f}  {:.1f} samples/s  ETA {}  peak {}  comm {:.1f} %",
                     report.step, total.size(), total, report.loss, rates.samples_per_second,
                     format_seconds(rates.eta_seconds), format_bytes(static_cast<double>(report.peak_bytes)),
                     100.0 * rates.comm_share);
}

std::string format_seconds(double seconds) {
  if (!std::isfinite(seconds)) return "?";
  const auto s = static_cast<std::int64_t>(std::llround(std::max(seconds, 0.0)));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string format_bytes(double bytes) {
  if (bytes < 1024) return fmt::format("{:.0f} B", bytes);
  static constexpr const char* kUnits[] = {"KiB", "MiB", "GiB", "TiB"};
  int unit = 0;
  for (bytes /= 1024; bytes >= 1023.5 && unit < 3; ++unit) bytes /= 1024;
  return fmt::format("{:.{}f} {}", bytes, bytes < 9.995 ? 2 : bytes < 99.95 ? 1 : 0, kUnits[unit]);
}

}  // namespace tessera::train
