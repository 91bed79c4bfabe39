#include "comm/cuda/reduce_kernels.h"

#include <type_traits>

#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class A>
TS_DEVICE A combined(Combine op, A a, A b) {
  if (op == Combine::Max) return a > b || a != a ? a : b;
  if (op == Combine::Min) return a < b || a != a ? a : b;
  if constexpr (std::is_same_v<A, bool>) {
    return op == Combine::Sum ? a || b : a && b;
  } else if constexpr (std::is_integral_v<A>) {  // wraps
    using U = std::make_unsigned_t<A>;
    const auto x = static_cast<U>(a);
    const auto y = static_cast<U>(b);
    return static_cast<A>(op == Combine::Sum ? x + y : x * y);
  } else {
    return op == Combine::Sum ? a + b : a * b;
  }
}

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
