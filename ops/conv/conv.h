// Convolution over 1, 2 or 3 spatial dims.
//
// Sharded: a cut batch is local; along a cut spatial dim every rank fetches what its windows reach beyond its
// own part (halo; any kernel, stride, dilation, padding, as wide as it must be) and output o lives where the
// middle of its window lives; cut output channels are local, cut input channels give Partial. Backward sends
// the halo's gradient back.
//
// An activation may follow in the same pass (ops/cpu/conv.h, ops/cuda/conv_rule.h), with the numbers of
// gelu(conv(x, w, bias)) up to rounding, of which there is once less in 16 bits. Sums that are owed (cut
// input channels) are made first; the activation is then an operation of its own. Backward keeps what the
// activation is given, but for Relu, whose result tells as much: working it out again would cost a
// convolution. The gradient is multiplied by the slope in a pass of its own.
#pragma once
#include "autograd/tensor.h"
#include "mesh/layout.h"
#include "ops/cpu/norm_activation.h"

namespace tessera {

using cpu::Activation;  // None, Relu, Silu, Gelu, GeluTanh

// One entry per spatial dim; a single entry counts for all.
struct ConvOptions {
  Dims stride{1};
  Dims padding{0};  // on both sides
  Dims dilation{1};
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::Zeros;  // mesh/layout.h
  // PyTorch's padding "same": as much as keeps the size, one more at the end where it is odd; `padding` is
  // not read.
  bool same = false;
  // Spatial dims whose padding is circular whatever padding_mode says: {1} for maps [latitude, longitude].
  Dims periodic{};
  Activation activation = Activation::None;  // of the result, bias included
  bool operator==(const ConvOptions&) const = default;
};

// x [N, C, spatial…] or [C, spatial…], w [O, C / groups, kernel…], bias [O] or undefined -> [N, O, out…]. The
// number of spatial dims (1 to 3) is w's.
Tensor conv(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options = {});
Tensor conv1d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options = {});
Tensor conv2d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options = {});
Tensor conv3d(const Tensor& x, const Tensor& w, const Tensor& bias, const ConvOptions& options = {});

}  // namespace tessera
