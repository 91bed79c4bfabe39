// The process's table of chosen ways, by a line of text that says all that a choice depends on, and its file:
// a first line that names the format, then one line per choice, the way last.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "ops/cpu/conv_choice.h"

namespace tessera::cpu {

class ConvPlans {
 public:
  // Reads the file that TESSERA_CONV_PLANS names before anything else.
  static ConvPlans& process();
  ~ConvPlans();
  ConvPlans(const ConvPlans&) = delete;
  ConvPlans& operator=(const ConvPlans&) = delete;

  // The choice for `key`. If there is none, make() gives it while other threads wait: all of a process's
  // threads choose alike. make() may ask for other keys.
  template <class Make>
  ConvWay get(const std::string& key, const Make& make) {
    const std::lock_guard lock(mutex_);
    const auto found = ways_.find(key);
    if (found != ways_.end()) return found->second;
    const ConvWay way = make();
    ways_.emplace(key, way);
    return way;
  }
  bool find(const std::string& key, ConvWay& way);
  // Changes whenever choices were taken away or came from a file.
  std::uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }

  void load(const std::string& path);
  void save(const std::string& path);
  void forget();

 private:
  ConvPlans();
  using Ways = std::map<std::string, ConvWay>;
  static Ways parse(const std::string& text, const std::string& path);

  std::recursive_mutex mutex_;
  Ways ways_;
  std::atomic<std::uint64_t> generation_{1};
  std::string path_;  // added to when the process ends
};

}  // namespace tessera::cpu
