// Rows along one dim of strided arrays, handed to row kernels as contiguous numbers.
#pragma once
#include "ops/cpu/block_io.h"
#include "runtime/array.h"

namespace tessera::cpu {

// f32, f64 rows with stride 1 are used as they lie; others are copied through `buffer` (n numbers).
template <class S>
const Compute<S>* row_in(const S* x, std::int64_t stride, std::int64_t n, Compute<S>* buffer) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (stride == 1) return x;
  }
  load_block<S>(buffer, x, stride, n);
  return buffer;
}
template <class S>
Compute<S>* row_out(S* x, std::int64_t stride, Compute<S>* buffer) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (stride == 1) return x;
  }
  return buffer;
}
template <class S>
void row_done(S* x, std::int64_t stride, std::int64_t n, const Compute<S>* row) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (row == x) return;
  }
  store_block<S>(x, stride, row, n);
}

}  // namespace tessera::cpu
