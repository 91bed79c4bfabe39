// Values of all threads of a block combined; every thread gets the result.
//
// The order is fixed: lanes by a tree, then the warps one after another. Blocks of a multiple of 32 threads,
// with kReduceBytes of shared memory (from `offset_bytes` on). `combine` must not care which operand comes
// first.
#pragma once
#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

constexpr int kReduceBytes = 32 * 16;

template <class A, class F>
TS_DEVICE A block_reduce(const Block& block, A value, F combine, int offset_bytes = 0) {
  static_assert(sizeof(A) <= 16);
  for (int mask = 16; mask > 0; mask /= 2) value = combine(value, block.shuffle_xor(value, mask));
  A* warps = block.shared<A>(offset_bytes);
  if (block.thread() % 32 == 0) warps[block.thread() / 32] = value;
  block.sync();
  A result = warps[0];
  for (int w = 1; w < block.threads() / 32; ++w) result = combine(result, warps[w]);
  block.sync();  // before the memory is used again
  return result;
}

template <class A>
struct Plus {
  TS_DEVICE A operator()(A a, A b) const { return a + b; }
};
// NaN wins.
template <class A>
struct Larger {
  TS_DEVICE A operator()(A a, A b) const { return a > b || a != a ? a : b; }
};

// Threads for rows of n elements: enough to keep them busy, a multiple of 32.
inline int threads_for_row(std::int64_t n) { return n <= 64 ? 32 : n <= 512 ? 64 : n <= 2048 ? 128 : 256; }

}  // namespace tessera::cuda
