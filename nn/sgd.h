#pragma once
#include "nn/optimizer.h"

namespace tessera::optim {

struct SgdOptions {
  double lr = 1e-2;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;  // needs momentum and no dampening
};

// Stochastic gradient descent, PyTorch's form; f32 and f64. State: "step" and, with momentum, "momentum".
class Sgd : public Optimizer {
 public:
  explicit Sgd(const Tensors& params, const SgdOptions& options = {});
  explicit Sgd(std::vector<ParamGroup> groups, const SgdOptions& options = {});

 protected:
  void update(Device device, const Batch& batch) override;

 private:
  SgdOptions options_;
};
using SGD = Sgd;

}  // namespace tessera::optim
