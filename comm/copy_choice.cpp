#include "comm/copy_choice.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "runtime/seconds.h"
#include "runtime/stream_copy.h"

namespace tessera {
namespace {

constexpr std::int64_t kLong = std::int64_t{1} << 14;  // less gains nothing past the caches
constexpr int kCold = 4;                               // the first touch pages that nobody has touched
constexpr int kTrials = 16;                            // both ways in turn
constexpr int kHolds = 8192;                           // then the question is asked again
// What lies past the caches is fetched from the memory by its reader, whose time the writer does not see.
constexpr double kGain = 0.7;

}  // namespace

void CopyChoice::copy(char* to, const char* from, std::int64_t bytes) {
  if (bytes < kLong) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  const int turn = long_ones_++ - kCold;
  if (turn >= 0 && turn < kTrials) {
    timed(turn % kWays == 0 ? kOrdinary : kPast, to, from, bytes);
    if (turn == kTrials - 1) chosen_ = quickest_[kPast] < kGain * quickest_[kOrdinary] ? kPast : kOrdinary;
    return;
  }
  if (long_ones_ == kHolds) {
    long_ones_ = 0;
    std::fill_n(quickest_, std::size_t{kWays}, kUnknown);
  }
  copy_by(chosen_, to, from, bytes);
}

void CopyChoice::copy_by(Way way, char* to, const char* from, std::int64_t bytes) {
  if (way == kOrdinary) {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
    return;
  }
  stream_copy(to, from, bytes);
  stream_fence();
}

void CopyChoice::timed(Way way, char* to, const char* from, std::int64_t bytes) {
  using Clock = std::chrono::steady_clock;
  const auto start = Clock::now();
  copy_by(way, to, from, bytes);
  const double took = seconds_since(start);
  quickest_[way] = std::min(quickest_[way], took / static_cast<double>(bytes));
}

}  // namespace tessera
