#include "nn/adamw.h"

#include "nn/optimizer_kernels.h"

namespace tessera::optim {

AdamW::AdamW(const Tensors& params, const AdamWOptions& options)
    : AdamW(std::vector<ParamGroup>{{params}}, options) {}

AdamW::AdamW(std::vector<ParamGroup> groups, const AdamWOptions& options)
    : Optimizer("AdamW", std::move(groups), options.lr, {"exp_avg", "exp_avg_sq"}), options_(options) {
  const auto fraction = [](double b) { return b >= 0.0 && b < 1.0; };
  TS_CHECK(fraction(options.betas.first) && fraction(options.betas.second), "AdamW",
           "betas {} and {}; both must be in [0, 1)", options.betas.first, options.betas.second);
  TS_CHECK(options.eps >= 0 && options.weight_decay >= 0, "AdamW",
           "eps {} and weight decay {} must not be negative", options.eps, options.weight_decay);
}

void AdamW::update(Device device, const Batch& batch) {
  cpu::AdamWArgs args;
  args.params = batch.params;
  args.grads = batch.grads;
  args.exp_avg = batch.buffers[0];
  args.exp_avg_sq = batch.buffers[1];
  args.lr = batch.lr;
  args.beta1 = options_.betas.first;
  args.beta2 = options_.betas.second;
  args.eps = options_.eps;
  args.weight_decay = batch.weight_decay.value_or(options_.weight_decay);
  args.grad_scale = batch.grad_scale;
  args.scalars = batch.scalars;
  args.step = batch.step;
  kernels::adamw(device, args);
}

}  // namespace tessera::optim
