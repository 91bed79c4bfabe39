// Weights [O, C / groups, kernel] as the matrices that our own kernels read or sum up, with any strides on
// the weights' side.
#pragma once
#include <algorithm>
#include <bit>
#include <limits>

#include "ops/cpu/conv_problem.h"

namespace tessera::cpu {

// Output channels [first, first + count) of a group, one input channel and one kernel position: number
// `outer` in the outer kernel dims, `last` in the last.
struct WeightBlock {
  std::int64_t first, count, channel, outer, last;
  std::int64_t offset;  // of the first output channel in the weights
};

// Calls f(block) for all of a group's weights; neighbouring calls touch the same lines of memory.
template <class F>
void for_each_weight_block(const ConvProblem& p, const Array& w, std::int64_t group, const F& f) {
  constexpr std::int64_t kOutputs = 16;
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t step[3] = {0, 0, 0};
  for (int d = 0; d < p.spatial; ++d) {
    kernel[3 - p.spatial + d] = p.kernel[d];
    step[3 - p.spatial + d] = w.stride(d + 2);
  }
  for (std::int64_t o = 0; o < p.group_out(); o += kOutputs)
    for (std::int64_t c = 0; c < p.group_in(); ++c)
      for (std::int64_t i = 0; i < kernel[0]; ++i)
        for (std::int64_t j = 0; j < kernel[1]; ++j)
          for (std::int64_t k = 0; k < kernel[2]; ++k)
            f(WeightBlock{o, std::min(kOutputs, p.group_out() - o), c, i * kernel[1] + j, k,
                          (group * p.group_out() + o) * w.stride(0) + c * w.stride(1) + i * step[0] +
                              j * step[1] + k * step[2]});
}

// Zeros that stand for what lies beyond a map make NaN of others.
template <class S>
bool all_finite(const Array& w) {
  using Bits = std::conditional_t<sizeof(S) == 8, std::uint64_t,
                                  std::conditional_t<sizeof(S) == 4, std::uint32_t, std::uint16_t>>;
  const Array dense = w.is_contiguous() ? w : w.contiguous();
  const auto exponent = std::bit_cast<Bits>(static_cast<S>(std::numeric_limits<float>::infinity()));
  const S* const from = dense.template data<S>();
  Bits found = 0;
  for (std::int64_t i = 0; i < dense.numel(); ++i)
    found |= static_cast<Bits>((std::bit_cast<Bits>(from[i]) & exponent) == exponent ? 1 : 0);
  return found == 0;
}

}  // namespace tessera::cpu
