// What training programs do around their steps: read their settings, count, report.
#pragma once
#include <functional>
#include <string>

#include "train/config.h"
#include "train/metrics.h"

namespace tessera::maps {

// Collective. Reads file and command line; `check` refuses what the options do not allow together. What any
// rank refuses all refuse, and what a rank alone was told otherwise. True if help was asked for, which rank 0
// has printed then.
struct Arguments {
  const char* program = "";
  int argc = 0;
  char** argv = nullptr;
};
bool read_settings(const Communicator& world, train::Config& config, const Arguments& arguments,
                   const std::function<void()>& check);

struct StepResult {
  double loss = 0;
  double lr = 0;
};

struct LoopOptions {
  int steps = 0;
  int every = 10;               // steps between progress lines
  std::int64_t samples = 1;     // per step, over all ranks
  std::string folder;           // of loss.dat: the loss as columns for gnuplot
  Device device = Device::Cpu;  // whose peak memory is reported
};
// Collective. Runs the steps, shows progress, writes one line of metrics and one of loss.dat a step.
void run_steps(const Communicator& world, const LoopOptions& options, train::MetricsWriter& metrics,
               const std::function<StepResult()>& step);

}  // namespace tessera::maps
