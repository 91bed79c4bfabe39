#include "examples/winds/trainer.h"

#include <fmt/format.h>

#include "ops/ops.h"
#include "runtime/device.h"
#include "train/sync.h"

namespace tessera::winds {
namespace {

std::vector<std::int64_t> divisors(std::int64_t n) {
  std::vector<std::int64_t> list;
  for (std::int64_t d = 1; d <= n; ++d)
    if (n % d == 0) list.push_back(d);
  return list;
}

constexpr const char* kProgram = "tessera-winds";

nn::ViTOptions model_options(const Settings& s, const MapCut& cut, const GridShape& grid) {
  nn::ViTOptions o;
  o.channels = kInputs;
  o.image = {cut.shape.padded_rows(), grid.cols};
  o.patch = {s.patch[0], s.patch[1]};
  o.width = s.width;
  o.depth = s.depth;
  o.heads = s.heads;
  o.mlp_ratio = s.mlp_ratio;
  o.dropout = s.dropout;
  o.out_channels = kOutputs;
  o.zero_head = true;
  o.seed = static_cast<std::uint64_t>(s.seed);
  o.dtype = s.dtype == "f64" ? DType::F64 : DType::F32;
  return o;
}

}  // namespace

void check_batch(const Settings& settings, const GridShape& grid) {
  // The first months of the file have no history to learn from.
  const std::int64_t last = grid.months - settings.held_out - 1;
  const std::int64_t samples = last - kHistory + 1;
  TS_CHECK(settings.batch <= samples, kProgram,
           "a batch of {} is more than the training samples; 1 to {} are allowed (months {} to {}, as the "
           "last {} are held out)",
           settings.batch, samples, kHistory, last, settings.held_out);
}

MapCut cut_map(const DeviceMesh& mesh, const GridShape& grid, const std::vector<int>& patch) {
  TS_CHECK(patch[0] <= grid.rows, kProgram,
           "a patch of {} rows is taller than the map; 1 to {} rows are allowed", patch[0], grid.rows);
  TS_CHECK(grid.cols % patch[1] == 0, kProgram,
           "a patch of {} columns does not divide the map's {} columns (rows are padded, columns are not); "
           "allowed are {}",
           patch[1], grid.cols, fmt::join(divisors(grid.cols), ", "));
  return maps::cut_map(kProgram, mesh, {grid.rows, grid.cols, patch[0], patch[1]});
}

Trainer::Trainer(const Settings& settings, const MapCut& cut, const WindData& data)
    : settings_(settings),
      cut_(cut),
      data_(data),
      dtype_(settings.dtype == "f64" ? DType::F64 : DType::F32),
      device_(device_from_name(kProgram, settings.device)),
      order_(data.train_months(), static_cast<std::uint64_t>(settings.seed)) {
  TS_CHECK(settings.batch >= cut.ddp, kProgram, "a batch of {} cannot be shared out over ddp={}",
           settings.batch, cut.ddp);
  model_ = std::make_unique<nn::ViT>(model_options(settings, cut, data.grid()));
  model_->to(device_);
  train::sync_module(*model_, cut.mesh);
  parallel_ = std::make_unique<train::DataParallel>(*model_, cut.mesh);
  optim::AdamWOptions o;
  o.lr = settings.lr;
  o.betas = {settings.beta1, settings.beta2};
  optimizer_ = std::make_unique<optim::AdamW>(optim::decay_groups(*model_, settings.weight_decay), o);
  if (settings.cuda_graph) graph_ = std::make_unique<train::StepGraph>(cut.mesh.comm());
  schedule_ = optim::warmup_cosine({settings.lr, std::min(settings.warmup, settings.steps), settings.steps});
}

Tensor Trainer::as_tensor(const Array& local, std::int64_t channels) const {
  return Tensor(local.to(device_), cut_.spec(local.size(0), channels));
}

// The map's rows are padded to whole patches at the far edge, and cut back.
Tensor Trainer::predict(const Tensor& input) {
  const std::int64_t rows = data_.grid().rows;
  const Tensor padded = pad(input, {0, 0, 0, cut_.shape.padded_rows() - rows});
  return slice(model_->forward(padded), maps::kRowDim, 0, rows);
}

void Trainer::load(Tensor& buffer, const Array& local, std::int64_t channels) const {
  if (buffer.defined()) {
    buffer.local().copy_(local);
  } else {
    buffer = as_tensor(local, channels);
  }
}

// What the device does in a step, all of it.
Tensor Trainer::device_step(const Interval& mine) {
  Tensor loss = mse_loss(predict(input_), target_);
  // Unequal shares: weighted so that the mean over ddp is the mean over the batch.
  const double weight = train::global_mean_weight(mine.length(), settings_.batch, cut_.ddp);
  if (weight != 1.0) loss = loss * weight;
  optimizer_->zero_grad();
  loss.backward();
  optimizer_->step();
  return loss;
}

Tensor Trainer::advance() {
  const std::vector<int> months = order_.batch(done_, settings_.batch);
  const Interval mine = default_partition(settings_.batch, cut_.ddp)[static_cast<std::size_t>(cut_.replica)];
  const std::span<const int> share(months.data() + mine.lo, static_cast<std::size_t>(mine.length()));
  model_->train();
  model_->dropout_generator().set_batch_offset(mine.lo);
  const WindBatch batch = data_.make_batch(share, dtype_);
  load(input_, batch.input, kInputs);
  load(target_, batch.target, kOutputs);
  optimizer_->set_lr(schedule_(done_));
  ++done_;
  const auto step = [&] { return device_step(mine); };
  return graph_ ? graph_->run(step) : step();
}

StepResult Trainer::step() {
  const Tensor loss = advance();
  return {train::mean_over_ddp(loss, cut_.mesh), optimizer_->lr()};
}

Array Trainer::forecast(std::span<const int> months) {
  const NoGrad guard;
  model_->eval();
  const WindBatch batch = data_.make_batch(months, dtype_);
  // The prediction has the map's own cut again: patches never straddle ranks.
  const Tensor input = as_tensor(batch.input, kInputs);
  const Tensor output = redistribute(predict(input), as_tensor(batch.target, kOutputs).spec());
  return data_.to_wind(output.local().contiguous().to(Device::Cpu), months);
}

Score Trainer::score() {
  ScoreSums sums(data_);
  for (int month : data_.test_months()) {
    const Array wind = forecast(std::span(&month, 1));
    sums.add(month, wind.slice(0, 0, 1).squeeze(0));
  }
  return sums.reduce("the model", data_.domain());
}

Array Trainer::whole_map(const Array& local) const {
  const NoGrad guard;
  return as_tensor(local.unsqueeze(0), kOutputs).full_tensor().local().squeeze(0).to(Device::Cpu);
}

}  // namespace tessera::winds
