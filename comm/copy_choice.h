// Copies for a reader on another core, by ordinary stores or past the caches.
//
// Which is quicker depends on where the two cores are: stores past the caches are several times as fast where
// the cores share no cache (ordinary ones wait for every line to come back from the reader), and several
// times as slow where they do (the data then go by way of the memory). No file of the system tells that
// reliably, and a process that is not bound moves. So a writer tries both on its first long messages, and
// again after some thousands; what counts is the quickest of each, and past the caches must be clearly
// quicker. The bytes are the same either way.
#pragma once
#include <cstdint>
#include <limits>

namespace tessera {

class CopyChoice {
 public:
  // Copies to memory on a cache line; ordered before what is stored afterwards with release.
  void copy(char* to, const char* from, std::int64_t bytes);

 private:
  enum Way { kOrdinary, kPast, kWays };
  static void copy_by(Way way, char* to, const char* from, std::int64_t bytes);
  void timed(Way way, char* to, const char* from, std::int64_t bytes);

  static constexpr double kUnknown = std::numeric_limits<double>::infinity();
  int long_ones_ = 0;  // since the choice was last in question
  Way chosen_ = kPast;
  double quickest_[kWays] = {kUnknown, kUnknown};  // seconds a byte
};

}  // namespace tessera
