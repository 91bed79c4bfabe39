// The arithmetic of reductions: blocks of the ranks are combined in rank order, so the result does not depend
// on which message came first. bf16 and f16 accumulate in float and are rounded once. For bool, Sum and Max
// are "or", Product and Min are "and". Max and Min pass on NaN. Integer sums wrap.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "runtime/kernel.h"

namespace tessera {

struct BlockReduction {
  DType dtype = DType::F32;
  ReduceOp op = ReduceOp::Sum;
  std::span<const void* const> blocks;  // one per rank, in rank order
  void* out = nullptr;                  // may be one of the blocks
  std::int64_t count = 0;               // elements
  Device device = Device::Cpu;          // whose memory that is
};
void reduce_blocks(const BlockReduction& reduction);

// The seam for other devices, and how many blocks each takes at once.
extern Kernel<void(const BlockReduction&)> reduce_blocks_kernel;
int most_reduction_blocks(Device device);
void set_most_reduction_blocks(Device device, int most);

}  // namespace tessera
