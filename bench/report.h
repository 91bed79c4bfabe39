// What comes out: a table for people and, with --json, one JSON line a variant for programs.
#pragma once
#include <fstream>
#include <string>

#include "bench/measure.h"
#include "runtime/dtype.h"

namespace tessera::bench {

// Work of one call, where a rate says more than a time.
struct Work {
  double amount = 0;      // flops or bytes; 0: no rate
  const char* unit = "";  // "GF/s" or "GB/s"
  double peak = 0;        // what is possible at most, per second; 0: not said
};

// Something else that was measured about a case: "peak_bytes", 3.1e8.
struct Figure {
  std::string name;  // in the JSON lines
  double value = 0;
  std::string text;  // in the table
};

struct Case {
  std::string group;  // "recut"
  std::string name;   // "S0 to S1"
  std::string shape;  // global sizes
  DType dtype = DType::F32;
  std::vector<Timing> timings = {};  // ratios are to the first
  Work work = {};                    // on one rank
  double limit = 0;                  // the largest ratio that the project allows itself; 0: none
  bool limits_paired = false;        // it is the paired ratio that this limits, not that of the best
  double limit_extra_s = 0;          // the same for the difference in seconds
  double limit_s = 0;                // of the first timing itself, in seconds
  bool limits_all = false;           // limit_s counts for every timing
  std::string family = {};           // kind of kernel
  std::string recipe = {};           // JSON: how another library does the same
  std::vector<Figure> figures = {};
};

class Report {
 public:
  // Rank 0 writes; an empty path: no JSON. Refuses a path that cannot be written.
  Report(const Communicator& world, const std::string& json_path, Device device);
  void add(const Case& c);
  // Says what was over a limit of its own; nothing where no case had limits.
  void summary() const;
  // Whether nothing was added, on any rank.
  bool is_empty() const { return empty_; }

 private:
  void header(const Case& c);
  void json_line(const Case& c, const Timing& t, bool over);

  Communicator world_;
  Device device_;
  std::string group_;
  std::ofstream json_;
  bool empty_ = true;
  int limited_ = 0;                // timings with a limit
  std::vector<std::string> over_;  // those beyond it
};

// Processor and threads, in one line.
std::string machine_line(const Communicator& world);

}  // namespace tessera::bench
