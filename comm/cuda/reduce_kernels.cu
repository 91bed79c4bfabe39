#include "comm/cuda/reduce_kernels.h"

#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class T>
struct CombineBlocks : Independent {
  Ptr<const T> block[kMostBlocks];
  int blocks;
  Combine op;
  Ptr<T> out;
  std::int64_t count;
  TS_DEVICE void operator()(const Block& b) const {
    const std::int64_t i = global_thread(b);
    if (i >= count) return;
    Wide<T> value = load(block[0][i]);
    for (int k = 1; k < blocks; ++k) value = combined<Wide<T>>(op, value, load(block[k][i]));
    out[i] = convert<T>(value);
  }
};

}  // namespace

void combine_blocks(const Blocks& blocks, StreamHandle stream) {
  dispatch(blocks.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    CombineBlocks<T> kernel;
    for (int k = 0; k < blocks.blocks; ++k) kernel.block[k] = static_cast<const T*>(blocks.block[k]);
    kernel.blocks = blocks.blocks;
    kernel.op = blocks.op;
    kernel.out = static_cast<T*>(blocks.out);
    kernel.count = blocks.count;
    launch(kernel, one_each(blocks.count), stream);
  });
}

}  // namespace tessera::cuda
