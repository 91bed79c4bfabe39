// Batch and instance norms with running statistics on the device, their batch shared out among ranks or not:
// the numbers of the CPU, a host that waits for nothing, and steps that can be captured.
#include <catch2/catch.hpp>

#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "tests/support/world.h"
#include "train/data_parallel.h"
#include "train/step_graph.h"
#include "train/sync.h"

using namespace tessera;

namespace {

class Net : public nn::Module {
 public:
  explicit Net(std::uint64_t seed) {
    const nn::RunningNormOptions norm{.dtype = DType::F64};
    body.add<nn::Conv2d>(
            2, 4,
            nn::ConvLayerOptions{
                .kernel_size = {1}, .dtype = DType::F64, .generator = std::make_shared<Generator>(seed)})
        .add<nn::BatchNorm2d>(4, norm)
        .add<nn::GELU>()
        .add<nn::InstanceNorm2d>(4, nn::InstanceNormLayerOptions{
                                        .affine = true, .track_running_stats = true, .dtype = DType::F64});
    register_module("body", body);
  }
  Tensor forward(const Tensor& x) override { return body(x); }
  nn::Sequential body;
};

// The state after some steps, and what the last of them waited for.
struct Result {
  std::vector<double> state;
  std::int64_t waits = 0;
};

Result trained(Device device, bool as_graph) {
  const int ranks = test_world().size();
  const DeviceMesh mesh(test_world(), {{"ddp", ranks}});
  Net model(3);
  model.to(device);
  train::sync_module(model, mesh);
  train::DataParallel parallel(model, mesh);
  optim::SGD optimizer(model.parameters(), {.lr = 0.05, .momentum = 0.9});
  std::unique_ptr<train::StepGraph> graph;
  if (as_graph) graph = std::make_unique<train::StepGraph>(test_world(), 1);
  Generator random(11);
  const Tensor whole = randn({3 * ranks, 2, 5, 4}, random, DType::F64);
  // Unequal shares; the last rank has none where there are more than two.
  const std::int64_t rank = test_world().rank();
  const std::int64_t mine = rank == 0 ? 4 : ranks > 2 && rank + 1 == ranks ? 0 : 2;
  const Tensor x = to(slice(whole, 0, rank * 2, rank * 2 + mine), device);
  const auto step = [&] {
    const Tensor loss = sum(square(model(x)));
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    return loss;
  };
  Result result;
  for (int i = 0; i < 4; ++i) {
    const std::int64_t before = cuda::host_waits();
    if (graph) {
      graph->run(step);
    } else {
      step();
    }
    result.waits = cuda::host_waits() - before;
  }
  for (const nn::NamedTensor& n : model.state()) {
    const std::vector<double> v = n.tensor.to_vector();
    result.state.insert(result.state.end(), v.begin(), v.end());
  }
  train::check_replicas(model, mesh);
  return result;
}

}  // namespace

TEST_CASE("running statistics on the device are the CPU's, and nobody waits for them", "[device]") {
  const Result cpu = trained(Device::Cpu, false);
  const Result eager = trained(Device::Cuda, false);
  CHECK(eager.waits == 0);
  REQUIRE(eager.state.size() == cpu.state.size());
  for (std::size_t i = 0; i < cpu.state.size(); ++i)
    CHECK(std::abs(eager.state[i] - cpu.state[i]) <= 1e-10 * (1 + std::abs(cpu.state[i])));
  const Result replayed = trained(Device::Cuda, true);
  CHECK(replayed.waits == 0);
  CHECK(replayed.state == eager.state);
}
