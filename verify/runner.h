// tessera-verify: runs case files under random shardings and says what went wrong.
//
// All ranks go through the same trials and meet after each: what every rank found is gathered, so a fault of
// any rank is a fault of the trial, and a rank that threw alone cannot leave the others in its collective
// (their waits have a short deadline). Meshes live as long as nothing fails, as they do in a program, so that
// what is cached for one case is met by the next. After a fault the trial is tried once more on new meshes;
// if it passes there, the line says so.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "runtime/array.h"

namespace tessera::verify {

struct RunnerOptions {
  std::vector<std::string> files = {};  // a folder stands for the case files in it
  std::uint64_t seed = 0;               // the same on every rank
  int trials = 6;                       // a file; limits come on top
  std::vector<int> mesh = {};           // empty: drawn
  DType dtype = DType::F32;             // or F64
  Device device = Device::Cpu;
  std::string report = {};                 // JSON lines; empty: none
  std::string only_trial = {};             // "3" or "limit0"; empty: all
  std::string program = "tessera-verify";  // as the line that reruns a trial names it
  double trial_seconds = 30.0;             // how long a rank waits for another within a trial
  std::function<void(const std::string& line)> print = {};  // rank 0's lines; empty: to stdout
};

struct RunnerTotals {
  std::int64_t passed = 0;
  std::int64_t failed = 0;
};

// Collective over `world`; rank 0 prints one line for each failure and the totals. A file that cannot be read
// counts as one failed trial.
RunnerTotals run_cases(const Communicator& world, const RunnerOptions& options);

}  // namespace tessera::verify
