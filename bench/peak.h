// What one core can do at most.
#pragma once

namespace tessera::bench {

// float32 operations a second of independent fused multiply-adds in registers, two operations each, with the
// instruction set that the kernels use (cpu::active_isa()); measured once, the best of several tries.
double fma_peak();

}  // namespace tessera::bench
