#include "bench/peak.h"

#include <algorithm>
#include <chrono>

#include "bench/fma_chains.h"

namespace tessera::bench {

double fma_peak() {
  static const double peak = [] {
    using Clock = std::chrono::steady_clock;
    constexpr std::int64_t kRounds = 20000;
    double best = 0;
    for (int i = 0; i < 100; ++i) {
      const auto start = Clock::now();
      const double operations = run_fma_chains(kRounds);
      best = std::max(best, operations / std::chrono::duration<double>(Clock::now() - start).count());
    }
    return best;
  }();
  return peak;
}

}  // namespace tessera::bench
