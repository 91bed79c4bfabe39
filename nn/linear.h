#pragma once
#include "nn/module.h"
#include "ops/matmul/matmul.h"

namespace tessera::nn {

// What layers with weights have in common. Without a generator initial values come from seed 0, so layers of
// equal shape begin alike: give one generator to all of them, or call the model's `initialize(seed)`.
struct LinearOptions {
  bool bias = true;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;
  Activation activation = Activation::None;  // of y, in the same call
};

// y = x wᵀ + b over the last dim: [..., in_features] -> [..., out_features]. Cut leading dims stay cut,
// without a message.
class Linear : public Module {
 public:
  Linear(std::int64_t in_features, std::int64_t out_features, const LinearOptions& options = {});
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  Tensor weight;  // [out_features, in_features]
  Tensor bias;    // [out_features], or undefined

 private:
  Activation activation_;
};

}  // namespace tessera::nn
