// Whole sharded operations, forward and backward: between devices no host waits for a message.
#include <catch2/catch.hpp>
#include <cmath>

#include "ops/cuda/cudnn_plans.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "tests/frames_from.h"
#include "tests/support/world.h"
#include "train/scatter.h"

using namespace tessera;

namespace {

Array wave(const Dims& sizes, double phase) {
  std::vector<double> values(static_cast<std::size_t>(numel_of(sizes)));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(0.37 * static_cast<double>(i) + phase);
  return Array::from(values, sizes, DType::F32);
}

DeviceMesh all_ranks() { return {test_world(), {{"domain", test_world().size()}}}; }

Tensor cut(const DeviceMesh& mesh, const Dims& sizes, double phase, int dim, Device device) {
  Tensor x = to(train::scatter(Tensor(wave(sizes, phase)), 0, mesh, {Shard(dim)}), device);
  return x.set_requires_grad();
}

struct Result {
  std::vector<double> values;
  std::int64_t waits = 0;
  std::int64_t plans = 0;  // of cuDNN that were run
};

// One step to warm up, one that is counted.
template <class Step>
Result counted(const Tensor& x, Step step) {
  Result result;
  for (int i = 0; i < 2; ++i) {
    const std::int64_t before = cuda::host_waits();
    const std::int64_t plans = cuda::plan_runs();
    x.zero_grad();
    const Tensor loss = sum(step());
    loss.backward();
    result.waits = cuda::host_waits() - before;
    result.plans = cuda::plan_runs() - plans;
    result.values = x.grad().local().to_vector();
  }
  return result;
}

void check_alike(const Result& device, const Result& cpu) {
  REQUIRE(device.values.size() == cpu.values.size());
  for (std::size_t i = 0; i < cpu.values.size(); ++i)
    CHECK(std::abs(device.values[i] - cpu.values[i]) <= 1e-4 * (1 + std::abs(cpu.values[i])));
}

Result ring(Device device) {
  const DeviceMesh mesh = all_ranks();
  const Tensor q = cut(mesh, {1, 2, 13, 8}, 0, 2, device);
  const Tensor k = cut(mesh, {1, 2, 13, 8}, 1, 2, device);
  const Tensor v = cut(mesh, {1, 2, 13, 8}, 2, 2, device);
  return counted(k, [&] {
    q.zero_grad();
    v.zero_grad();
    return mul(scaled_dot_product_attention(q, k, v, {.is_causal = true}), q);
  });
}

Result shifted(Device device) {
  const Tensor x = cut(all_ranks(), {3, 11, 4}, 0, 1, device);
  return counted(x, [&] { return mul(roll(x, {2}, {1}), x); });
}

// Of a convolution along the cut: what its halos need, and its own kernels.
Result convolved(const Tensor& x, Device device) {
  const Tensor w = to(Tensor(wave({3, 2, 3, 3}, 1)), device).set_requires_grad();
  return counted(x, [&] {
    w.zero_grad();
    return conv2d(x, w, Tensor(), {.padding = {1}});
  });
}

}  // namespace

TEST_CASE("a convolution waits for no halo on the host", "[nccl]") {
  // Rows enough for an inside on each of 4 ranks; from one buffer, as small maps go, and in frames.
  const Dims sizes{1, 2, 28, 6};
  const auto on = [&](Device device) { return convolved(cut(all_ranks(), sizes, 0, 2, device), device); };
  const Result buffered = on(Device::Cuda);
  const FramesFrom always(0);
  const Result framed = on(Device::Cuda);
  const Result plain = convolved(to(Tensor(wave(sizes, 0)), Device::Cuda).set_requires_grad(), Device::Cuda);
  // Its kernels may work on the host; then there is nothing to count.
  CHECK((buffered.waits == 0 || plain.waits > 0));
  CHECK((framed.waits == 0 || plain.waits > 0));
  const Result cpu = on(Device::Cpu);
  check_alike(buffered, cpu);
  check_alike(framed, cpu);
  // Edges are calls of their own.
  if (test_world().size() > 1 && buffered.plans > 0) CHECK(framed.plans > buffered.plans);
}

TEST_CASE("ring attention waits for no message on the host", "[nccl]") {
  const Result device = ring(Device::Cuda);
  CHECK(device.waits == 0);
  check_alike(device, ring(Device::Cpu));
}

TEST_CASE("halos and shifts wait for no message on the host", "[nccl]") {
  const Result device = shifted(Device::Cuda);
  CHECK(device.waits == 0);
  check_alike(device, shifted(Device::Cpu));
}
