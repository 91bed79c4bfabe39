// The most that tensors take at once in a training step, parameters and optimizer included.
#include <catch2/catch.hpp>

#include "tests/step_memory.h"

using namespace tessera;

namespace {

// What PyTorch 2.15.0 takes for the same (bench/pytorch/train_step.py), contiguous, its lower one of both.
constexpr std::int64_t kPyTorch = 81997992;
constexpr std::int64_t kPyTorchConvolutions = 650707144;
// Parameters, their gradients and moments, 31.7 MiB, are not cut; a rank of two holds a little over half of
// the rest.
constexpr std::int64_t kOneOfTwo = std::int64_t{60} << 20;

}  // namespace

TEST_CASE("a vision transformer's step takes no more memory than in PyTorch") {
  const std::int64_t peak = take_step<nn::ViT>(Device::Cpu, {1, 8, 256, 256}, vit_options(256, 192)).peak;
  INFO(peak << " bytes");
  CHECK(peak <= (test_world().size() == 1 ? kPyTorch : kOneOfTwo));
}

TEST_CASE(
    "a step of convolutions takes no more memory than in PyTorch, and half of it on each of two ranks") {
  const std::int64_t peak = take_step<Convolutions>(Device::Cpu, {1, 8, 512, 512}, 32).peak;
  INFO(peak << " bytes");
  CHECK(peak <= kPyTorchConvolutions / test_world().size());
}
