// Whole training steps: clear the gradients, forward, loss, backward, AdamW, and reading the loss.
#include <fmt/format.h>

#include "bench/groups.h"
#include "nn/adamw.h"
#include "nn/vit.h"
#include "ops/ops.h"
#include "train/data_parallel.h"
#include "train/sync.h"

namespace tessera::bench {
namespace {

constexpr std::int64_t kRowDim = 2;

nn::ViTOptions vit_options(bool quick) {
  nn::ViTOptions o;
  o.channels = 8;
  o.image = quick ? Dims{96, 96} : Dims{256, 256};
  o.patch = {8, 8};
  o.width = 192;
  o.depth = quick ? 1 : 4;
  o.heads = 3;
  o.classes = 10;
  return o;
}

// The model of examples/winds on its map, without the data: rows padded to patches, a map as the target.
nn::ViTOptions winds_options(bool quick) {
  nn::ViTOptions o;
  o.channels = 10;
  o.image = {76, 144};
  o.patch = {4, 4};
  o.width = 96;
  o.depth = quick ? 1 : 4;
  o.heads = 4;
  o.dropout = 0.2;
  o.out_channels = 2;
  return o;
}

// A model in training on one batch, the loss being the mean square of the output. Without a mesh: plain.
class Training {
 public:
  Training(const nn::ViTOptions& options, std::int64_t batch, const DeviceMesh& mesh)
      : model_(options), optimizer_(model_.parameters(), {.lr = 1e-3}) {
    Generator generator(1);
    const Dims sizes{batch, options.channels, options.image[0], options.image[1]};
    if (!mesh.defined()) {
      input_ = randn(sizes, generator);
      return;
    }
    std::vector<std::int64_t> rows;
    for (const Interval& patches : default_partition(options.image[0] / options.patch[0], mesh.size()))
      rows.push_back(patches.length() * options.patch[0]);
    input_ =
        randn(sizes, generator, DType::F32, ShardSpec::from_lengths(mesh, {Shard(kRowDim)}, sizes, {rows}));
    train::sync_module(model_, mesh);
    parallel_ = std::make_unique<train::DataParallel>(model_, mesh);
  }

  void step() {
    optimizer_.zero_grad();
    const Tensor loss = mean(square(model_(input_)));
    loss.backward();
    optimizer_.step();
    last_loss_ = loss.item();
  }
  std::int64_t parameters() const { return model_.num_parameters(); }
  std::string shape() const { return input_.sizes().str(); }

 private:
  nn::ViT model_;
  optim::AdamW optimizer_;
  std::unique_ptr<train::DataParallel> parallel_;
  Tensor input_;
  double last_loss_ = 0;
};

DeviceMesh domain_mesh(const Communicator& world) { return DeviceMesh(world, {{"domain", world.size()}}); }

std::string cut_name(const Communicator& world) {
  return fmt::format("cut over {} rank{}", world.size(), world.size() == 1 ? "" : "s");
}

// Steps in one repeat, after some that warm up plans and memory.
Variant steps(std::string name, Training& training, int count) {
  for (int i = 0; i < 2; ++i) training.step();
  return {std::move(name),
          [&training, count] {
            for (int i = 0; i < count; ++i) training.step();
          },
          count};
}

}  // namespace

void vit_step(const Settings& settings, Report& report) {
  const nn::ViTOptions options = vit_options(settings.quick);
  const bool plain = settings.world.size() == 1;
  Training training(options, 1, plain ? DeviceMesh() : domain_mesh(settings.world));
  const int count = settings.quick ? 1 : 3;
  const auto timings =
      interleaved(settings, {steps(plain ? "plain" : cut_name(settings.world), training, count)});
  report.add({.group = "vit_step",
              .name = fmt::format("{} parameters", training.parameters()),
              .shape = training.shape(),
              .timings = timings});
}

void vit_scaling(const Settings& settings, Report& report) {
  const nn::ViTOptions options = vit_options(settings.quick);
  Training plain(options, 1, DeviceMesh());
  Training cut(options, 1, domain_mesh(settings.world));
  const int count = settings.quick ? 1 : 2;
  const auto timings = interleaved(
      settings, {steps("plain on every rank", plain, count), steps(cut_name(settings.world), cut, count)});
  report.add({.group = "vit_scaling", .name = "ViT", .shape = cut.shape(), .timings = timings});
}

void winds_step(const Settings& settings, Report& report) {
  const std::int64_t batch = settings.quick ? 1 : 4;
  const nn::ViTOptions options = winds_options(settings.quick);
  Training plain(options, batch, DeviceMesh());
  Training cut(options, batch, domain_mesh(settings.world));
  const int count = settings.quick ? 1 : 2;
  const auto timings = interleaved(
      settings, {steps("plain on every rank", plain, count), steps(cut_name(settings.world), cut, count)});
  report.add({.group = "winds_step", .name = "winds ViT", .shape = cut.shape(), .timings = timings});
}

}  // namespace tessera::bench
