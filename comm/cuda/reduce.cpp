#include "comm/reduce.h"

#include "comm/cuda/nccl_link.h"
#include "comm/cuda/reduce_kernels.h"

namespace tessera::cuda {
namespace {

Combine combine_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::Sum:
      return Combine::Sum;
    case ReduceOp::Max:
      return Combine::Max;
    case ReduceOp::Min:
      return Combine::Min;
    case ReduceOp::Product:
      break;
  }
  return Combine::Product;
}

void reduce_blocks_cuda(const BlockReduction& r) {
  TS_CHECK(r.blocks.size() <= kMostBlocks, "reduce_blocks", "{} blocks were given, allowed are up to {}",
           r.blocks.size(), kMostBlocks);
  Blocks blocks;
  blocks.dtype = r.dtype;
  blocks.op = combine_of(r.op);
  for (std::size_t k = 0; k < r.blocks.size(); ++k) blocks.block[k] = r.blocks[k];
  blocks.blocks = static_cast<int>(r.blocks.size());
  blocks.out = r.out;
  blocks.count = r.count;
  combine_blocks(blocks, current_stream());
  check_launch("reduce_blocks");
}

const bool registered = [] {
  reduce_blocks_kernel.set(Device::Cuda, &reduce_blocks_cuda);
  set_most_reduction_blocks(Device::Cuda, kMostBlocks);
  register_nccl();
  return true;
}();

}  // namespace
}  // namespace tessera::cuda

extern "C" bool tessera_cuda_comm() { return tessera::cuda::registered; }
