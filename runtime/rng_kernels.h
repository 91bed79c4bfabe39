// The loops of random numbers that are worth their own instructions. Every build of them gives the same
// bits.
#pragma once
#include <vector>

#include "runtime/rng.h"
#include "runtime/rng_normals.h"

namespace tessera::detail {

struct RngKernels {
  const char* name;
  // The four words each of `blocks` consecutive blocks, in order.
  void (*words)(RngKey key, std::uint64_t first_block, std::int64_t blocks, std::uint32_t* words);
  // out[i] = words[i] >= limit ? in[i] * factor : 0, contiguous; out may be in.
  void (*drop)(float* out, const float* in, const std::uint32_t* words, std::int64_t n, std::uint32_t limit,
               float factor);
  // The pairs of normal values of as many pairs of words (box_muller in rng_math.h), scaled.
  void (*normals)(const std::uint32_t* words, std::int64_t pairs, NormalScale scale, double* values);
};

const RngKernels& baseline_rng_kernels();
// All that this machine can run, the best last. Which file defines it is chosen by CMake.
const std::vector<RngKernels>& machine_rng_kernels();
inline const RngKernels& rng_kernels() {
  static const RngKernels best = machine_rng_kernels().back();
  return best;
}

}  // namespace tessera::detail
