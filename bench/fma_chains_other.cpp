#include <cmath>

#include "bench/fma_chains.h"

namespace tessera::bench {

double run_fma_chains(std::int64_t rounds) {
  constexpr int kChains = 64;  // for the compiler to make vectors of
  float chain[kChains];
  for (float& c : chain) c = 1.0F;
  for (std::int64_t r = 0; r < rounds; ++r)
    for (float& c : chain) c = std::fma(c, 0.999F, 0.001F);
  volatile float kept = 0;
  for (const float c : chain) kept = kept + c;
  return 2.0 * kChains * static_cast<double>(rounds);
}

}  // namespace tessera::bench
