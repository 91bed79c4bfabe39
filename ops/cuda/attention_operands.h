// Arrays [N, H, L, D] as the kernels of attention see them. Host side.
#pragma once
#include "ops/cuda/attention_kernels.h"
#include "runtime/array.h"

namespace tessera::cuda {

// Undefined: none.
inline HeadRows head_rows(const Array& x) {
  if (!x.defined()) return {};
  return {x.raw(), x.stride(0), x.stride(1), x.stride(2)};
}

inline HeadShape head_shape(const Array& x) {
  return {x.dtype(), x.size(1), x.size(2), x.size(3), x.size(0)};
}

}  // namespace tessera::cuda
