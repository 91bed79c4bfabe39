// How many threads run a kernel, and the shared memory of each block.
#pragma once
#include <cstdint>

namespace tessera::cuda {

struct LaunchShape {
  std::int64_t blocks = 1;
  int threads = 256;
  int shared_bytes = 0;
};

// One thread per item.
inline LaunchShape one_each(std::int64_t items, int threads = 256) {
  return {(items + threads - 1) / threads, threads, 0};
}

}  // namespace tessera::cuda
