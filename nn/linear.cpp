#include "nn/linear.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

Linear::Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options)
    : activation_(options.activation) {
  TS_CHECK(in_features >= 1 && out_features >= 1, "Linear",
           "in_features and out_features must be at least 1, given {} and {}", in_features, out_features);
  weight = register_parameter("weight", zeros({out_features, in_features}, options.dtype));
  bias = register_parameter("bias", options.bias ? zeros({out_features}, options.dtype) : Tensor());
  Generator first(0);
  Linear::reset_parameters(options.generator ? *options.generator : first);
}

void Linear::reset_parameters(Generator& generator) {
  init::kaiming_uniform(weight, generator);
  if (bias.defined()) init::bias_uniform(bias, init::fan_in(weight.sizes()), generator);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias, activation_); }

}  // namespace tessera::nn
