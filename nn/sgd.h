#pragma once
#include "nn/optimizer.h"

namespace tessera::optim {

struct SGDOptions {
  double lr = 1e-2;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;  // needs momentum and no dampening
};

// Stochastic gradient descent, PyTorch's form; f32 and f64. State: "step" and, with momentum, "momentum".
class SGD : public Optimizer {
 public:
  explicit SGD(const Tensors& params, const SGDOptions& options = {});
  explicit SGD(std::vector<ParamGroup> groups, const SGDOptions& options = {});

 protected:
  void update(Device device, const Batch& batch) override;

 private:
  SGDOptions options_;
};
using SGD = SGD;

}  // namespace tessera::optim
