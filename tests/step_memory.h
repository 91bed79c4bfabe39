// The memory of a training step of the models of bench/pytorch/train_step.py, in sizes of the test's choice.
#pragma once
#include <memory>
#include <optional>

#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/allocator.h"
#include "runtime/device.h"
#include "tests/support/page_faults.h"
#include "tests/support/world.h"
#include "train/data_parallel.h"
#include "train/sync.h"

namespace tessera {

inline nn::ViTOptions vit_options(std::int64_t side, std::int64_t width) {
  nn::ViTOptions o;
  o.channels = 8;
  o.image = {side, side};
  o.patch = {8, 8};
  o.width = width;
  o.depth = 4;
  o.heads = 3;
  o.classes = 10;
  return o;
}

class Convolutions : public nn::Sequential {
 public:
  explicit Convolutions(std::int64_t width) {
    for (int i = 0; i < 6; ++i)
      add<nn::Conv2d>(i == 0 ? 8 : width, width, nn::ConvLayerOptions{.kernel_size = {3}, .padding = {1}})
          .add<nn::GroupNorm>(8, width, nn::GroupNormOptions{.activation = NormActivation::Gelu});
    add<nn::Conv2d>(width, 4, nn::ConvLayerOptions{.kernel_size = {1}});
  }
};

struct StepMemory {
  std::int64_t peak = 0;         // bytes, parameters and optimizer included
  std::int64_t kept = 0;         // when the step is over
  std::int64_t allocations = 0;  // from the system or the driver
  std::int64_t faults = 0;       // of pages, in `more` steps behind it
};

// How many steps there are before the one that counts. Where streams run late, blocks come back late, and it
// takes a few until there are enough of them.
constexpr int steps_before(Device device) { return device == Device::Cpu ? 2 : 8; }

// Of a later step of a model on an input of these sizes, whose rows are cut where there are several ranks.
template <class Model, class Options>
StepMemory take_step(Device device, const Dims& sizes, const Options& options, int more = 0) {
  const std::int64_t before = allocator_stats(device).live_bytes;
  const Communicator world = test_world();
  Model model(options);
  if (device != Device::Cpu) model.to(device);
  optim::AdamW optimizer(model.parameters(), {.lr = 1e-3});
  Generator random(1);
  Tensor x;
  std::unique_ptr<train::DataParallel> parallel;
  if (world.size() == 1) {
    x = randn(sizes, random);
  } else {
    const DeviceMesh mesh(world, {{"domain", world.size()}});
    x = randn(sizes, random, DType::F32, ShardSpec::make(mesh, {Shard(2)}, sizes));
    train::sync_module(model, mesh);
    parallel = std::make_unique<train::DataParallel>(model, mesh);
  }
  if (device != Device::Cpu) x = to(x, device);
  const auto step = [&] {
    optimizer.zero_grad();
    const Tensor loss = mean(square(model(x)));
    loss.backward();
    optimizer.step();
  };
  for (int i = 0; i < steps_before(device); ++i) step();
  reset_peak(device);
  const AllocatorStats steady = allocator_stats(device);
  step();
  const AllocatorStats after = allocator_stats(device);
  const std::int64_t faults = page_faults();
  for (int i = 0; i < more; ++i) step();
  return {after.peak_live_bytes - before, after.live_bytes - before,
          after.system_allocations - steady.system_allocations, page_faults() - faults};
}

}  // namespace tessera
