// What a training run tells: metrics.jsonl for programs, a progress line for people.
//
// Rank 0 writes, the others carry the same objects and do nothing, so that a training loop has no `if (rank
// == 0)`.
#pragma once
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "comm/communicator.h"

namespace tessera::train {

// One value of a metrics line. A number that is not finite is written as null: JSON has no NaN.
using MetricValue = std::variant<std::int64_t, double, bool, std::string>;
using MetricFields = std::vector<std::pair<std::string, MetricValue>>;

// {"kind":"step","step":1,"loss":0.98,...}
std::string metrics_line(const std::string& kind, const MetricFields& fields);

// One JSON object a line, flushed line by line: what was written stays readable when the run ends early.
class MetricsWriter {
 public:
  MetricsWriter() = default;  // writes nothing
  // Collective over `comm`: rank 0 creates the file (what was there is replaced, folders are made); if it
  // cannot, all ranks throw the same error.
  MetricsWriter(const Communicator& comm, const std::string& path);

  // Local. On rank 0 a line that cannot be written (disk full) throws (kind Io).
  void write(const std::string& kind, const MetricFields& fields);
  // A line with one member that is JSON already, such as Config::json().
  void write_json(const std::string& kind, const std::string& name, const std::string& json);

 private:
  void write_line(const std::string& line);
  std::string path_;
  std::shared_ptr<std::FILE> file_;
};

struct StepReport {
  std::int64_t step = 0;  // steps done so far, from 1
  double loss = 0;
  std::int64_t samples = 0;     // of this step, over all ranks
  std::int64_t peak_bytes = 0;  // high-water mark of tensor memory
  double comm_seconds = 0;      // in communication since the start (Recorder::Totals::seconds)
};

struct StepRates {
  double seconds = 0;             // this step
  double samples_per_second = 0;  // smoothed
  double eta_seconds = 0;         // to the last step, at the smoothed rate
  double comm_share = 0;          // 0 to 1, smoothed
};

// Step, loss, samples/s, time left, peak memory, share of time in communication. On a terminal one line is
// updated in place; elsewhere there is one line every `every` steps, and one for the last step.
class Progress {
 public:
  struct Options {
    std::int64_t total_steps = 0;
    std::int64_t every = 10;
    std::FILE* out = stdout;
    bool print = true;      // false on all ranks but 0
    bool in_place = false;  // see is_terminal()
  };
  // Starts the clock.
  explicit Progress(const Options& options);

  // After each step. `now` in seconds from a steady clock.
  StepRates update(const StepReport& report) { return update(report, now()); }
  StepRates update(const StepReport& report, double now);
  // Ends the line that is updated in place, before anything else is printed.
  void finish();
  // Time that was not training (evaluation, writing) up to now: rates and the time left leave it out.
  void restart_clock() { restart_clock(now()); }
  void restart_clock(double now) { last_ = now; }

  static double now();
  static bool is_terminal(std::FILE* file);

 private:
  Options options_;
  double last_ = 0;
  double last_comm_ = 0;
  // Sums in which a step's weight fades to 1/e over kMemory steps.
  double weight_ = 0;
  double seconds_ = 0;
  double samples_ = 0;
  double comm_ = 0;
  bool open_line_ = false;
};

// "step  120/400  loss 0.8123  31.2 samples/s  ETA 1:05  peak 212 MiB  comm 3.1 %"
std::string progress_line(const StepReport& report, const StepRates& rates, std::int64_t total_steps);
// "0:07", "12:30", "3:05:09"
std::string format_seconds(double seconds);
// "512 B", "3.4 KiB", "212 MiB", "1.50 GiB"
std::string format_bytes(double bytes);

}  // namespace tessera::train
