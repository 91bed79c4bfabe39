// Training steps of a few convolutions whose rows are cut, and what their waiting for messages has to be,
// however it is counted.
#pragma once
#include <catch2/catch.hpp>

#include <memory>

#include "nn/nn.h"
#include "ops/ops.h"
#include "train/data_parallel.h"
#include "train/sync.h"

namespace tessera {

class ConvolutionSteps {
 public:
  static constexpr int kLayers = 4;

  // On maps of these sizes [1, C, H, W].
  ConvolutionSteps(const Communicator& world, const Dims& map, Device device = Device::Cpu) {
    const DeviceMesh mesh(world, {{"domain", world.size()}});
    for (int i = 0; i < kLayers; ++i)
      net_.add<nn::Conv2d>(map[1], map[1], nn::ConvLayerOptions{.kernel_size = {3}, .padding = {1}});
    net_.to(device);
    train::sync_module(net_, mesh);
    parallel_ = std::make_unique<train::DataParallel>(net_, mesh);
    Generator random(1);
    x_ = to(randn(map, random, DType::F32, ShardSpec::make(mesh, {Shard(2)}, map)), device);
  }

  // Forward and backward, twice: `begin` comes before each, so that what it counts is of a step after the
  // first.
  template <class Begin>
  void run(const Begin& begin) {
    for (int i = 0; i < 2; ++i) {
      for (const Tensor& p : net_.parameters()) Tensor(p).zero_grad();
      begin();
      sum(square(net_(x_))).backward();
    }
  }

 private:
  nn::Sequential net_;
  std::unique_ptr<train::DataParallel> parallel_;
  Tensor x_;
};

// Of a step with overlap and one without, where a message takes `latency`.
template <class Counted, class Time>
void check_overlap(const Counted& with, const Counted& without, Time latency) {
  constexpr int kLayers = ConvolutionSteps::kLayers;
  CHECK(with.computed == without.computed);
  // A halo of every layer, the gradient of all but the first one's, and the parameters' gradients.
  CHECK(without.waits == kLayers + (kLayers - 1) + 1);
  CHECK(without.waited == without.waits * latency);
  // Nothing is left to be computed when the last of the parameters' gradients leave.
  CHECK(with.waits == 1);
  CHECK(with.waited <= latency);
  CHECK(with.share() < 0.25 * without.share());
}

}  // namespace tessera
