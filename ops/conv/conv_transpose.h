// Transposed convolution over 1, 2 or 3 spatial dims: the map whose matrix is the transpose of conv's.
//
// y[n, o, i stride + r dilation - padding] += x[n, c, i] w[c, o, r]. Its output has
// (in - 1) stride - 2 padding + dilation (kernel - 1) + output_padding + 1 positions.
//
// Sharded: a cut batch is local. Along a cut spatial dim the output is cut where the middles of the input's
// windows lie; every rank adds up what its own inputs contribute, and what falls to a neighbour travels in
// one exchange (nothing where the kernel is no longer than the stride, whatever the cuts). Cut input channels
// give Partial, output channels follow the weight, or the bias where that alone is cut; depthwise (one filter
// a channel) cut channels are local.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// One entry per spatial dim; a single entry counts for all.
struct ConvTransposeOptions {
  Dims stride{1};
  Dims padding{0};         // positions cut off the output on both sides
  Dims output_padding{0};  // positions added at the output's end; less than stride or dilation
  Dims dilation{1};
  std::int64_t groups = 1;
  bool operator==(const ConvTransposeOptions&) const = default;
};

// x [N, C, spatial…] or [C, spatial…], w [C, O / groups, kernel…], bias [O] or undefined -> [N, O, out…].
Tensor conv_transpose1d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose2d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTransposeOptions& options = {});
Tensor conv_transpose3d(const Tensor& x, const Tensor& w, const Tensor& bias,
                        const ConvTransposeOptions& options = {});

}  // namespace tessera
