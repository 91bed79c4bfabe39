// The spatial dims of a convolution but the last (none, one or two), made two: kernels that work line by line
// loop over them.
#pragma once
#include "ops/cpu/conv_problem.h"

namespace tessera::cpu {

struct OuterDims {
  std::int64_t out[2] = {1, 1};
  std::int64_t in[2] = {1, 1};
  std::int64_t kernel[2] = {1, 1};
  std::int64_t stride[2] = {1, 1};
  std::int64_t padding[2] = {0, 0};
  std::int64_t dilation[2] = {1, 1};
  std::int64_t x_stride[2] = {0, 0};
  std::int64_t y_stride[2] = {0, 0};
};
inline OuterDims outer_dims(const ConvProblem& p, const Array& x, const Array& y) {
  OuterDims o;
  for (int d = 0; d + 1 < p.spatial; ++d) {
    const int at = d + 3 - p.spatial;
    o.out[at] = p.out[d];
    o.in[at] = p.in[d];
    o.kernel[at] = p.kernel[d];
    o.stride[at] = p.stride[d];
    o.padding[at] = p.padding_lo[d];
    o.dilation[at] = p.dilation[d];
    o.x_stride[at] = x.stride(d + 2);
    o.y_stride[at] = y.stride(d + 2);
  }
  return o;
}

}  // namespace tessera::cpu
