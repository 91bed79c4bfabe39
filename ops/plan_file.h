// The file of ops/plan_cache.h. A line for each plan: who made it, its graph, its bytes in hexadecimal digits
// and a checksum (FNV-1a, 64 bits) of all these, between tabs. What is wrong with the file costs the plans
// that are wrong and nothing else: a line that is damaged or was not written to its end is as if it were not
// there, and is so from then on, since who meets it first warns of it and makes it empty.
#pragma once
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>

namespace tessera {

class PlanFile {
 public:
  // How every maker begins. A file whose lines all begin otherwise is somebody's file of something else, and
  // nothing is added to it.
  static constexpr const char* kBegin = "cudnn ";

  // Plans of other makers are left alone. A warning, and as if `path` were empty, where it cannot be used.
  PlanFile(std::string path, std::string maker);

  // The plan's bytes, if they are those that were kept for this graph.
  std::optional<std::string> find(const std::string& graph) const;
  // True once for each graph that the file does not hold: a plan that was dropped may be made again.
  bool wants(const std::string& graph);
  // Where it cannot be written there is one warning, and no more is added.
  void add(const std::string& graph, const std::string& bytes);

 private:
  bool take(const std::string& line);
  std::int64_t read(int clears);
  std::int64_t clear_damaged();

  std::string path_;
  std::string maker_;
  std::unordered_map<std::string, std::string> kept_;  // digits by graph
  std::mutex mutex_;                                   // of what follows
  std::unordered_set<std::size_t> added_;
  bool writes_ = true;
};

// Why plans cannot be kept in `path`; "" if they can. Makes the file if there is none.
std::string plan_file_fault(const std::string& path);
// With one write, so that ranks may share a file, and on a line of its own, whatever the last line lacks.
// Why it failed, or "".
std::string append_line(const std::string& path, std::string line);

}  // namespace tessera
