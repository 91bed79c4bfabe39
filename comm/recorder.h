// Recorder: what was communicated, counted where it happens.
//
// Tests assert on it, `tessera-verify` and the training loop report it. One record per collective or
// exchange that this rank took part in: kind, group size, messages and payload bytes handed to *other* ranks
// (exchange), or the bytes of this rank's contribution (collectives; the messages that a collective is made
// of are not counted again: it is one message, or none in a group of one). An exchange of a rank that sends
// nothing and receives nothing is not recorded.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera {

struct CommRecord {
  std::string_view kind;  // "exchange", "all_reduce", "all_gather", ... (string literals)
  int group_size = 1;
  std::int64_t messages = 0;
  std::int64_t bytes = 0;
  const char* scope = "";  // innermost CommScope of the calling thread, e.g. "conv2d"
  const char* file = "";
  unsigned line = 0;
};

// Names what this thread communicates for, while it lives (string literals only).
class CommScope {
 public:
  explicit CommScope(const char* name);
  ~CommScope();
  CommScope(const CommScope&) = delete;
  CommScope& operator=(const CommScope&) = delete;
  static const char* current();

 private:
  const char* previous_;
};

class Recorder {
 public:
  struct Totals {
    std::int64_t calls = 0;
    std::int64_t messages = 0;
    std::int64_t bytes = 0;
    double seconds = 0;  // spent in waits and in the calls of collectives
  };

  void add(const CommRecord& record);
  void add_seconds(double seconds) { totals_.seconds += seconds; }
  const Totals& totals() const { return totals_; }
  // Single records are kept only while recording is on (totals always count).
  void start() {
    keep_ = true;
    records_.clear();
  }
  void stop() { keep_ = false; }
  const std::vector<CommRecord>& records() const { return records_; }
  std::int64_t count(std::string_view kind) const;  // among the kept records
  std::int64_t bytes(std::string_view kind) const;

 private:
  bool keep_ = false;
  Totals totals_;
  std::vector<CommRecord> records_;
};

}  // namespace tessera
