// Chains of fused multiply-adds that keep a core's arithmetic units busy and nothing else.
#pragma once
#include <cstdint>

namespace tessera::bench {

// Runs `rounds` links of as many chains as registers hold, in vectors of the active instruction set. Returns
// the floating-point operations done.
double run_fma_chains(std::int64_t rounds);

}  // namespace tessera::bench
