#include "examples/relief/trainer.h"

#include "ops/ops.h"
#include "runtime/device.h"
#include "train/sync.h"

namespace tessera::relief {
namespace {

nn::UNetOptions model_options(const Settings& s) {
  nn::UNetOptions o;
  o.in_channels = kInputs;
  o.out_channels = 1;
  o.widths.assign(s.widths.begin(), s.widths.end());
  o.groups = s.groups;
  o.periodic = {1};  // longitude
  o.zero_head = true;
  o.seed = static_cast<std::uint64_t>(s.seed);
  o.dtype = s.dtype == "f64" ? DType::F64 : DType::F32;
  return o;
}

}  // namespace

ReliefSource source_of(const Settings& settings, const std::string& path) {
  ReliefSource source;
  source.path = path;
  source.reduce = settings.reduce;
  source.coarsen = settings.coarsen;
  source.levels = static_cast<int>(settings.widths.size());
  source.held_out = regions_of(settings.held_out);
  return source;
}

Trainer::Trainer(const Settings& settings, const ReliefData& data) : data_(data) {
  const nn::UNetOptions options = model_options(settings);
  const Device device = device_from_name(kProgram, settings.device);
  inputs_ = to(data.inputs(options.dtype), device);
  factor_ = to(data.factor(options.dtype), device);
  goal_ = to(data.goal(options.dtype), device);
  model_ = std::make_unique<nn::UNet>(options);
  model_->to(device);
  train::sync_module(*model_, data.cut().mesh);
  parallel_ = std::make_unique<train::DataParallel>(*model_, data.cut().mesh);
  optim::AdamWOptions o;
  o.lr = settings.lr;
  o.betas = {settings.beta1, settings.beta2};
  optimizer_ = std::make_unique<optim::AdamW>(optim::decay_groups(*model_, settings.weight_decay), o);
  if (settings.cuda_graph) graph_ = std::make_unique<train::StepGraph>(data.cut().mesh.comm(), 1);
  schedule_ = optim::warmup_cosine({settings.lr, std::min(settings.warmup, settings.steps), settings.steps});
}

// What the device does in a step, all of it.
Tensor Trainer::device_step(const Dims& mirrored) {
  const auto as_seen = [&](const Tensor& x) { return mirrored.empty() ? x : flip(x, mirrored); };
  const Tensor output = model_->forward(as_seen(inputs_));
  Tensor loss = mse_loss(output * as_seen(factor_), as_seen(goal_), Reduction::Sum);
  optimizer_->zero_grad();
  loss.backward();
  optimizer_->step();
  return loss;
}

Tensor Trainer::advance() {
  model_->train();
  Dims mirrored;
  if (done_ % 2 == 1) mirrored.push_back(maps::kColDim);
  if (done_ / 2 % 2 == 1) mirrored.push_back(maps::kRowDim);
  const int kind = static_cast<int>(done_ % 4);
  optimizer_->set_lr(schedule_(done_));
  ++done_;
  const auto step = [&] { return device_step(mirrored); };
  return graph_ ? graph_->run(step, kind) : step();
}

maps::StepResult Trainer::step() {
  const Tensor loss = advance();
  return {loss.item(), optimizer_->lr()};
}

Tensor Trainer::heights() {
  const NoGrad guard;
  model_->eval();
  return data_.to_heights(to(model_->forward(inputs_), Device::Cpu));
}

}  // namespace tessera::relief
