#include "nn/conv.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

namespace {

void check_channels(const char* layer, std::int64_t in, std::int64_t out, std::int64_t groups) {
  TS_CHECK(groups >= 1 && in >= 1 && out >= 1 && in % groups == 0 && out % groups == 0, layer,
           "channels in {} and out {} must be positive multiples of groups {}", in, out, groups);
}

// The sizes of a weight: two channel counts, then the kernel's.
Dims weight_sizes(const char* layer, Dims channels, const Dims& kernel, int spatial) {
  TS_CHECK(kernel.size() == 1 || kernel.size() == spatial, layer,
           "kernel_size {} given for {} spatial dims; give one entry or one per dim", kernel.str(), spatial);
  for (int d = 0; d < spatial; ++d) channels.push_back(kernel[kernel.size() == 1 ? 0 : d]);
  return channels;
}

void reset_like_pytorch(const Tensor& weight, const Tensor& bias, Generator& generator) {
  init::kaiming_uniform(weight, generator);
  if (bias.defined()) init::bias_uniform(bias, init::fan_in(weight.sizes()), generator);
}

std::int64_t entry(const Dims& list, int d) { return list[list.size() == 1 ? 0 : d]; }

}  // namespace

Conv::Conv(int spatial_dims, std::int64_t in_channels, std::int64_t out_channels, const ConvLayerOptions& o)
    : options_{o.stride, o.padding, o.dilation, o.groups, o.padding_mode, o.same, o.periodic, o.activation} {
  check_channels("Conv", in_channels, out_channels, o.groups);
  weight = register_parameter("weight", zeros(weight_sizes("Conv", {out_channels, in_channels / o.groups},
                                                           o.kernel_size, spatial_dims),
                                              o.dtype));
  bias = register_parameter("bias", o.bias ? zeros({out_channels}, o.dtype) : Tensor());
  Generator first(0);
  Conv::reset_parameters(o.generator ? *o.generator : first);
}

void Conv::reset_parameters(Generator& generator) { reset_like_pytorch(weight, bias, generator); }

Tensor Conv::forward(const Tensor& x) { return conv(x, weight, bias, options_); }

ConvTranspose::ConvTranspose(int spatial_dims, std::int64_t in_channels, std::int64_t out_channels,
                             const ConvTransposeLayerOptions& o)
    : options_{o.stride, o.padding, o.output_padding, o.dilation, o.groups} {
  check_channels("ConvTranspose", in_channels, out_channels, o.groups);
  weight =
      register_parameter("weight", zeros(weight_sizes("ConvTranspose", {in_channels, out_channels / o.groups},
                                                      o.kernel_size, spatial_dims),
                                         o.dtype));
  bias = register_parameter("bias", o.bias ? zeros({out_channels}, o.dtype) : Tensor());
  Generator first(0);
  ConvTranspose::reset_parameters(o.generator ? *o.generator : first);
}

void ConvTranspose::reset_parameters(Generator& generator) { reset_like_pytorch(weight, bias, generator); }

Tensor ConvTranspose::call(const Tensor& x, const ConvTransposeOptions& o) const {
  switch (weight.dim()) {
    case 3:
      return conv_transpose1d(x, weight, bias, o);
    case 4:
      return conv_transpose2d(x, weight, bias, o);
    default:
      return conv_transpose3d(x, weight, bias, o);
  }
}

Tensor ConvTranspose::forward(const Tensor& x) { return call(x, options_); }

Tensor ConvTranspose::forward(const Tensor& x, const Dims& output_size) {
  const int n = weight.dim() - 2;
  TS_CHECK(x.defined() && x.dim() >= n && output_size.size() == n, "ConvTranspose",
           "output_size needs one value per spatial dim ({}), given {}", n, output_size.str());
  ConvTransposeOptions o = options_;
  o.output_padding = Dims();
  for (int d = 0; d < n; ++d) {
    const std::int64_t stride = entry(o.stride, d);
    const std::int64_t least = (x.size(d - n) - 1) * stride - 2 * entry(o.padding, d) +
                               entry(o.dilation, d) * (weight.size(d + 2) - 1) + 1;
    TS_CHECK(output_size[d] >= least && output_size[d] < least + stride, "ConvTranspose",
             "spatial dim {} of an input {} can have {} to {} positions in the output, {} were asked for", d,
             x.sizes().str(), least, least + stride - 1, output_size[d]);
    o.output_padding.push_back(output_size[d] - least);
  }
  return call(x, o);
}

}  // namespace tessera::nn
