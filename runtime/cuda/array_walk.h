// Arrays as the kernels of the device see them. Host side.
#pragma once
#include "runtime/array.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

inline Elements elements_of(const Array& a) { return {a.raw(), a.dtype()}; }

// The operands walked together; all have the first one's sizes.
template <class... Others>
Walk<1 + sizeof...(Others)> walk_of(const Array& first, const Others&... others) {
  constexpr int kOperands = 1 + static_cast<int>(sizeof...(Others));
  return make_walk<kOperands>(first.dim(), first.sizes().begin(),
                              {first.strides().begin(), others.strides().begin()...});
}

}  // namespace tessera::cuda
