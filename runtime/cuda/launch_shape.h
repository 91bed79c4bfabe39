// How many threads run a kernel, and the shared memory of each block.
#pragma once
#include <cstdint>

namespace tessera::cuda {

struct LaunchShape {
  std::int64_t blocks = 1;
  int threads = 256;
  int shared_bytes = 0;
};

// What CUDA takes: a grid's first size has 31 bits.
constexpr std::int64_t kLargestGrid = (std::int64_t{1} << 31) - 1;
// Refuses (kind Backend) with the number that was asked for and the most there may be.
[[noreturn]] void refuse_blocks(std::int64_t blocks);
// The size of the grid; refused where it is too large for one launch, which would else run a part of it.
inline unsigned grid_of(const LaunchShape& shape) {
  if (shape.blocks > kLargestGrid) refuse_blocks(shape.blocks);
  return static_cast<unsigned>(shape.blocks);
}

// One thread per item.
inline LaunchShape one_each(std::int64_t items, int threads = 256) {
  return {(items + threads - 1) / threads, threads, 0};
}

}  // namespace tessera::cuda
