#include "nn/init.h"

#include <cmath>

#include "runtime/error.h"

namespace tessera::nn::init {

std::int64_t fan_in(const Dims& weight_sizes) {
  TS_CHECK(weight_sizes.size() >= 2, "fan_in", "a weight of two or more dims is needed, given {}",
           weight_sizes.str());
  std::int64_t n = 1;
  for (int d = 1; d < weight_sizes.size(); ++d) n *= weight_sizes[d];
  return n;
}

void kaiming_uniform(const Tensor& weight, Generator& generator) {
  bias_uniform(weight, fan_in(weight.sizes()), generator);
}

void bias_uniform(const Tensor& bias, std::int64_t fan, Generator& generator) {
  if (fan == 0) return zeros(bias);
  const double bound = 1.0 / std::sqrt(static_cast<double>(fan));
  uniform_(bias, -bound, bound, generator);
}

void kaiming_normal(const Tensor& weight, Generator& generator) {
  const double fan = static_cast<double>(fan_in(weight.sizes()));
  normal_(weight, 0.0, std::sqrt(2.0 / fan), generator);
}

namespace {

double fan_sum(const Dims& sizes) {
  const std::int64_t in = fan_in(sizes);
  return static_cast<double>(in + (sizes[1] == 0 ? 0 : in / sizes[1] * sizes[0]));
}

}  // namespace

void xavier_uniform(const Tensor& weight, Generator& generator, double gain) {
  const double bound = gain * std::sqrt(6.0 / fan_sum(weight.sizes()));
  uniform_(weight, -bound, bound, generator);
}

void xavier_normal(const Tensor& weight, Generator& generator, double gain) {
  normal_(weight, 0.0, gain * std::sqrt(2.0 / fan_sum(weight.sizes())), generator);
}

void normal(const Tensor& t, Generator& generator, double mean, double std) {
  normal_(t, mean, std, generator);
}
void trunc_normal(const Tensor& t, Generator& generator, double mean, double std) {
  trunc_normal_(t, mean, std, generator);
}
void constant(const Tensor& t, double value) { t.local().fill_(value); }
void zeros(const Tensor& t) { t.local().fill_(0.0); }
void ones(const Tensor& t) { t.local().fill_(1.0); }

}  // namespace tessera::nn::init
