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
void zeros(const Tensor& t);
void ones(const Tensor& t);

}  // namespace tessera::nn::init
