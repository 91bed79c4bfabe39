// Convolutions of few products: what their kernels share. Internal to conv_few*.cpp.
#pragma once
#include "ops/cpu/conv_problem.h"

namespace tessera::cpu {

inline constexpr double kFewFlops = 1e4;

// The spatial dims as three, the last one last.
struct Spatial {
  std::int64_t out[3] = {1, 1, 1};
  std::int64_t in[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t stride[3] = {1, 1, 1};
  std::int64_t padding[3] = {0, 0, 0};
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t x[3] = {0, 0, 0};  // in memory
  std::int64_t y[3] = {0, 0, 0};
  std::int64_t w[3] = {0, 0, 0};

  // Of input, weights and output, or of their gradients.
  Spatial(const ConvProblem& p, const Array& inputs, const Array& weights, const Array& outputs) {
    for (int d = 0; d < p.spatial; ++d) {
      const int at = 3 - p.spatial + d;
      out[at] = p.out[d];
      in[at] = p.in[d];
      kernel[at] = p.kernel[d];
      stride[at] = p.stride[d];
      padding[at] = p.padding_lo[d];
      dilation[at] = p.dilation[d];
      x[at] = inputs.stride(d + 2);
      y[at] = outputs.stride(d + 2);
      w[at] = weights.stride(d + 2);
    }
  }
  // f(i, j, k) in row-major order.
  template <class F>
  static void each(const std::int64_t* sizes, const F& f) {
    for (std::int64_t i = 0; i < sizes[0]; ++i)
      for (std::int64_t j = 0; j < sizes[1]; ++j)
        for (std::int64_t k = 0; k < sizes[2]; ++k) f(i, j, k);
  }
};

// Forward ones with any number of filters a group; false where there are too many products.
bool conv_forward_few_sums(const ConvProblem& p, const ConvArgs& args);

}  // namespace tessera::cpu
