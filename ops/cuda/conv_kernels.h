// Convolutions by our own kernels, for what cuDNN does not take (ops/cuda/conv_rule.h): every element by
// itself, any strides, sums in double. Simple and right; not fast.
#pragma once
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// Spatial dims are always three here; leading ones of size 1 are added.
struct ConvElements {
  Elements x, w, y;
  Elements bias;  // data null: none. Of y, or of x for the data gradient
  std::int64_t samples = 0;
  std::int64_t groups = 1;
  std::int64_t group_in = 0;   // channels of x per group
  std::int64_t group_out = 0;  // of y
  std::int64_t in[3] = {1, 1, 1};
  std::int64_t out[3] = {1, 1, 1};
  std::int64_t kernel[3] = {1, 1, 1};
  std::int64_t step[3] = {1, 1, 1};  // of the windows
  std::int64_t dilation[3] = {1, 1, 1};
  std::int64_t padding[3] = {};  // before the first element
  // Strides in elements: N C spatial..., of w: O, C / groups, spatial....
  std::int64_t x_stride[5] = {};
  std::int64_t w_stride[5] = {};
  std::int64_t y_stride[5] = {};
  std::int64_t bias_stride = 0;
};
// Floating types, the same for all operands.
void conv_forward_elements(const ConvElements& args, StreamHandle stream);
void conv_data_gradient_elements(const ConvElements& args, StreamHandle stream);
void conv_weight_gradient_elements(const ConvElements& args, StreamHandle stream);

}  // namespace tessera::cuda
