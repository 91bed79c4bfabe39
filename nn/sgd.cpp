#include "nn/sgd.h"

#include "nn/optimizer_kernels.h"

namespace tessera::optim {

SGD::SGD(const Tensors& params, const SGDOptions& options)
    : SGD(std::vector<ParamGroup>{{params}}, options) {}

SGD::SGD(std::vector<ParamGroup> groups, const SGDOptions& options)
    : Optimizer("SGD", std::move(groups), options.lr,
                options.momentum != 0.0 ? std::vector<std::string>{"momentum"} : std::vector<std::string>{}),
      options_(options) {
  TS_CHECK(options.momentum >= 0 && options.weight_decay >= 0, "SGD",
           "momentum {} and weight decay {} must not be negative", options.momentum, options.weight_decay);
  TS_CHECK(!options.nesterov || (options.momentum > 0 && options.dampening == 0), "SGD",
           "Nesterov's form needs momentum and no dampening, given momentum {} and dampening {}",
           options.momentum, options.dampening);
}

void SGD::update(Device device, const Batch& batch) {
  cpu::SgdArgs args;
  args.params = batch.params;
  args.grads = batch.grads;
  if (!batch.buffers.empty()) args.momentum_buffers = batch.buffers[0];
  args.lr = batch.lr;
  args.momentum = options_.momentum;
  args.dampening = options_.dampening;
  args.weight_decay = batch.weight_decay.value_or(options_.weight_decay);
  args.grad_scale = batch.grad_scale;
  args.scalars = batch.scalars;
  args.nesterov = options_.nesterov;
  args.first_step = batch.step == 1;
  kernels::sgd(device, args);
}

}  // namespace tessera::optim
