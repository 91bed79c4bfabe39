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

void zeros(const Tensor& t) { t.local().fill_(0.0); }
void ones(const Tensor& t) { t.local().fill_(1.0); }

}  // namespace tessera::nn::init
