// Initial values, as PyTorch's modules choose them.
//
// A value depends on the generator's seed, the number of draws before and the element's index, so a model is
// the same on every rank and mesh. In float64 the values are those of float32 with more digits.
#pragma once
#include "ops/random/random.h"

namespace tessera::nn::init {

// Elements of the weight that one output sees: weight [out, in, kernel…].
std::int64_t fan_in(const Dims& weight_sizes);
// Uniform in ±sqrt(1 / fan_in): kaiming_uniform with a = sqrt(5), the default of linear and convolution
// layers.
void kaiming_uniform(const Tensor& weight, Generator& generator);
// Uniform in ±1/sqrt(fan): what those layers do with their bias.
void bias_uniform(const Tensor& bias, std::int64_t fan, Generator& generator);
// Normal with deviation sqrt(2 / fan_in), for layers before ReLU (He et al. 2015).
void kaiming_normal(const Tensor& weight, Generator& generator);
// Uniform in ±gain·sqrt(6 / (fan_in + fan_out)), normal with deviation gain·sqrt(2 / (fan_in + fan_out))
// (Glorot and Bengio 2010). fan_out counts the outputs that one input reaches.
void xavier_uniform(const Tensor& weight, Generator& generator, double gain = 1.0);
void xavier_normal(const Tensor& weight, Generator& generator, double gain = 1.0);
void normal(const Tensor& t, Generator& generator, double mean = 0.0, double std = 1.0);
// Normal, cut off at two deviations.
void trunc_normal(const Tensor& t, Generator& generator, double mean = 0.0, double std = 0.02);
void constant(const Tensor& t, double value);
void zeros(const Tensor& t);
void ones(const Tensor& t);

}  // namespace tessera::nn::init
