#pragma once
#include "nn/module.h"

namespace tessera::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight (ones) and bias (zeros) of the normalized shape
  DType dtype = DType::F32;
};

// Over the last `shape.size()` dims.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Dims& shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  Tensor weight;
  Tensor bias;

 private:
  Dims shape_;
  double eps_;
};

}  // namespace tessera::nn
