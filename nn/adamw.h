#pragma once
#include <utility>

#include "nn/optimizer.h"

namespace tessera::optim {

struct AdamWOptions {
  double lr = 1e-3;
  std::pair<double, double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
};

// Adam with decoupled weight decay (Loshchilov and Hutter 2019), in PyTorch's order of operations; f32 and
// f64. State: "step", "exp_avg", "exp_avg_sq".
class AdamW : public Optimizer {
 public:
  explicit AdamW(const Tensors& params, const AdamWOptions& options = {});
  explicit AdamW(std::vector<ParamGroup> groups, const AdamWOptions& options = {});

 protected:
  void update(Device device, const Batch& batch) override;

 private:
  AdamWOptions options_;
};

}  // namespace tessera::optim
