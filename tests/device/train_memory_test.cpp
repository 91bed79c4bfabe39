// The most that tensors take at once in a training step on the device: what they take on the CPU, so that
// activations go as backward passes them, and nothing from the driver.
#include <catch2/catch.hpp>

#include "tests/step_memory.h"

using namespace tessera;

namespace {

// Learning rate, step number and clipping factor of the optimizer, which the CPU has elsewhere.
constexpr std::int64_t kOptimizer = 3 * 8;
// What a kernel may take beside its operands where the CPU takes nothing; less than an activation of a layer.
constexpr std::int64_t kScratch = 4096;

void check_alike(const StepMemory& here, const StepMemory& there, bool gradients_count) {
  INFO("peak on the CPU " << here.peak << " bytes, on the device " << there.peak << "; kept " << here.kept
                          << " and " << there.kept);
  CHECK(there.allocations == 0);
  CHECK(there.kept == here.kept + kOptimizer);
  // Of several ranks it is a matter of time how many of the CPU's sums of gradients are over at its peak; the
  // device has them until their stream is waited for.
  if (gradients_count && test_world().size() > 1) return;
  CHECK(there.peak >= here.peak + kOptimizer);
  CHECK(there.peak <= here.peak + kOptimizer + kScratch);
}

}  // namespace

TEST_CASE("a vision transformer's step takes as much memory on the device as on the CPU", "[device]") {
  const nn::ViTOptions options = vit_options(64, 24);
  const Dims sizes{1, 8, 64, 64};
  check_alike(take_step<nn::ViT>(Device::Cpu, sizes, options),
              take_step<nn::ViT>(test_device(), sizes, options), true);
}

TEST_CASE("a step of convolutions takes as much memory on the device as on the CPU", "[device]") {
  const Dims sizes{1, 8, 48, 48};
  check_alike(take_step<Convolutions>(Device::Cpu, sizes, 8),
              take_step<Convolutions>(test_device(), sizes, 8), false);
}
