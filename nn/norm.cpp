#include "nn/norm.h"

#include "nn/init.h"
#include "runtime/error.h"

namespace tessera::nn {

LayerNorm::LayerNorm(const Dims& normalized_shape, const LayerNormOptions& options)
    : shape_(normalized_shape), eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(shape_, options.dtype) : Tensor());
  bias = register_parameter("bias", options.elementwise_affine ? zeros(shape_, options.dtype) : Tensor());
}

void LayerNorm::reset_parameters(Generator&) {
  if (weight.defined()) init::ones(weight);
  if (bias.defined()) init::zeros(bias);
}

Tensor LayerNorm::forward(const Tensor& x) { return layer_norm(x, shape_, weight, bias, eps_); }

AddLayerNorm LayerNorm::forward_add(const Tensor& x, const Tensor& residual) {
  return add_layer_norm(x, residual, shape_, {weight, bias, eps_});
}

RMSNorm::RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options)
    : shape_(normalized_shape), eps_(options.eps) {
  weight = register_parameter("weight", options.elementwise_affine ? ones(shape_, options.dtype) : Tensor());
}

void RMSNorm::reset_parameters(Generator&) {
  if (weight.defined()) init::ones(weight);
}

Tensor RMSNorm::forward(const Tensor& x) { return rms_norm(x, shape_, weight, eps_); }

GroupNorm::GroupNorm(std::int64_t num_groups, std::int64_t num_channels, const GroupNormOptions& options)
    : groups_(num_groups), eps_(options.eps), activation_(options.activation) {
  TS_CHECK(num_groups > 0 && num_channels > 0 && num_channels % num_groups == 0, "GroupNorm",
           "{} channels cannot be divided into {} groups", num_channels, num_groups);
  weight = register_parameter("weight", options.affine ? ones({num_channels}, options.dtype) : Tensor());
  bias = register_parameter("bias", options.affine ? zeros({num_channels}, options.dtype) : Tensor());
}

void GroupNorm::reset_parameters(Generator&) {
  if (weight.defined()) init::ones(weight);
  if (bias.defined()) init::zeros(bias);
}

Tensor GroupNorm::forward(const Tensor& x) {
  return group_norm(x, groups_, weight, bias, {.eps = eps_, .activation = activation_});
}

}  // namespace tessera::nn
