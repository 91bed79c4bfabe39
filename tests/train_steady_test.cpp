// Training steps of the models that are compared with PyTorch take no memory from the system once they have
// warmed up: what they or their kernels took anew would be pages that are met for the first time.
#include <catch2/catch.hpp>

#include "tests/step_memory.h"

using namespace tessera;

namespace {

constexpr int kSteps = 6;

// What every step takes shows as a page or more in each; the C library and oneDNN may take one now and then.
void check_steady(const StepMemory& steps) {
  CHECK(steps.allocations == 0);
  INFO(steps.faults << " page faults in " << kSteps << " steps");
  CHECK(steps.faults < kSteps);
}

}  // namespace

TEST_CASE("warm steps of a vision transformer meet no new pages") {
  check_steady(take_step<nn::ViT>(Device::Cpu, {1, 8, 256, 256}, vit_options(256, 192), kSteps));
}

TEST_CASE("warm steps of convolutions meet no new pages") {
  check_steady(take_step<Convolutions>(Device::Cpu, {1, 8, 512, 512}, 32, kSteps));
}
