#include "nn/linear.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

Linear::Linear(std::int64_t in, std::int64_t out, const LinearOptions& options)
    : activation_(options.activation) {
  TS_CHECK(in >= 1 && out >= 1, "Linear", "features in and out must be at least 1, given {} and {}", in, out);
  weight = register_parameter("weight", zeros({out, in}, options.dtype));
  bias = register_parameter("bias", options.bias ? zeros({out}, options.dtype) : Tensor());
  Generator first(0);
  Linear::reset_parameters(options.generator ? *options.generator : first);
}

void Linear::reset_parameters(Generator& generator) {
  init::kaiming_uniform(weight, generator);
  if (bias.defined()) init::bias_uniform(bias, init::fan_in(weight.sizes()), generator);
}

Tensor Linear::forward(const Tensor& x) { return linear(x, weight, bias, activation_); }

}  // namespace tessera::nn
