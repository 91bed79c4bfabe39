#include "nn/norm.h"

#include "nn/init.h"
#include "ops/norm/norm.h"

namespace tessera::nn {

LayerNorm::LayerNorm(const Dims& shape, const LayerNormOptions& options) : shape_(shape), eps_(options.eps) {
  weight = register_parameter("weight", options.affine ? ones(shape, options.dtype) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros(shape, options.dtype) : Tensor());
}

void LayerNorm::reset_parameters(Generator&) {
  if (weight.defined()) init::ones(weight);
  if (bias.defined()) init::zeros(bias);
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_); }

}  // namespace tessera::nn
