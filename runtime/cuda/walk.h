// Elements of strided operands by their number: what element-wise kernels share.
//
// On the host: dims are ordered by the first operand's strides, those of size 1 dropped, neighbours merged
// where all operands allow it. On the device: the number of an element becomes one offset per operand.
#pragma once
#include <array>
#include <cstdint>

#include "runtime/cuda/kernel_context.h"

namespace tessera::cuda {

constexpr int kWalkDims = 8;

template <int Operands>
struct Walk {
  int dims = 0;
  std::int64_t numel = 1;
  std::int64_t size[kWalkDims] = {};              // innermost first
  std::int64_t stride[Operands][kWalkDims] = {};  // in elements

  // Offsets of element i (0 <= i < numel).
  TS_DEVICE void offsets(std::int64_t i, std::int64_t (&out)[Operands]) const {
    for (int k = 0; k < Operands; ++k) out[k] = 0;
    for (int d = 0; d + 1 < dims; ++d) {
      const std::int64_t next = divide(i, size[d]);
      const std::int64_t at = i - next * size[d];
      for (int k = 0; k < Operands; ++k) out[k] += at * stride[k][d];
      i = next;
    }
    if (dims > 0)
      for (int k = 0; k < Operands; ++k) out[k] += i * stride[k][dims - 1];
  }

 private:
  // 64-bit division is slow on the device.
  TS_DEVICE static std::int64_t divide(std::int64_t a, std::int64_t b) {
    if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
    return a / b;
  }
};

// Host only. `strides[k]` has `dims` entries, outermost first, as `sizes`.
template <int Operands>
Walk<Operands> make_walk(int dims, const std::int64_t* sizes,
                         const std::array<const std::int64_t*, Operands>& strides) {
  int order[kWalkDims];
  int n = 0;
  Walk<Operands> walk;
  for (int d = dims - 1; d >= 0; --d) {
    walk.numel *= sizes[d];
    if (sizes[d] == 1) continue;
    // Insertion by the first operand's stride, smallest first; equal ones keep their order, innermost first.
    const auto key = [&](int e) { return strides[0][e] < 0 ? -strides[0][e] : strides[0][e]; };
    int at = n++;
    for (; at > 0 && key(order[at - 1]) > key(d); --at) order[at] = order[at - 1];
    order[at] = d;
  }
  for (int i = 0; i < n; ++i) {
    const int d = order[i];
    bool joins = walk.dims > 0;
    for (std::size_t k = 0; joins && k < Operands; ++k)
      joins = walk.stride[k][walk.dims - 1] * walk.size[walk.dims - 1] == strides[k][d];
    if (joins) {
      walk.size[walk.dims - 1] *= sizes[d];
      continue;
    }
    walk.size[walk.dims] = sizes[d];
    for (std::size_t k = 0; k < Operands; ++k) walk.stride[k][walk.dims] = strides[k][d];
    ++walk.dims;
  }
  return walk;
}

}  // namespace tessera::cuda
