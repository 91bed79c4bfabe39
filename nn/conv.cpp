#include "nn/conv.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

Conv::Conv(int spatial_dims, std::int64_t in, std::int64_t out, const ConvLayerOptions& options)
    : options_{options.stride, options.padding, options.dilation, options.groups, options.padding_mode} {
  TS_CHECK(
      options.groups >= 1 && in >= 1 && out >= 1 && in % options.groups == 0 && out % options.groups == 0,
      "Conv", "channels in {} and out {} must be positive multiples of groups {}", in, out, options.groups);
  TS_CHECK(options.kernel.size() == 1 || options.kernel.size() == spatial_dims, "Conv",
           "kernel {} given for {} spatial dims; give one entry or one per dim", options.kernel.str(),
           spatial_dims);
  Dims sizes{out, in / options.groups};
  for (int d = 0; d < spatial_dims; ++d) sizes.push_back(options.kernel[options.kernel.size() == 1 ? 0 : d]);
  weight = register_parameter("weight", zeros(sizes, options.dtype));
  bias = register_parameter("bias", options.bias ? zeros({out}, options.dtype) : Tensor());
  Generator first(0);
  Conv::reset_parameters(options.generator ? *options.generator : first);
}

void Conv::reset_parameters(Generator& generator) {
  init::kaiming_uniform(weight, generator);
  if (bias.defined()) init::bias_uniform(bias, init::fan_in(weight.sizes()), generator);
}

Tensor Conv::forward(const Tensor& x) { return conv(x, weight, bias, options_); }

}  // namespace tessera::nn
