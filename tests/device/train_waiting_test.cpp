// How much of a training step is waiting for messages, counted without a clock: what the streams were given,
// in the order of the calls, is gone through as a device would, a plan of cuDNN's being one unit of time, a
// message `latency`, and all else nothing.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>

#include "emulated/streams.h"
#include "nn/nn.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "tests/frames_from.h"
#include "tests/support/world.h"
#include "train/data_parallel.h"
#include "train/sync.h"

using namespace tessera;

namespace {

using emulated::Kind;

// Of the compute stream.
struct Waiting {
  double computed = 0;
  double waited = 0;
  int waits = 0;  // that did not find their messages there
  double share() const { return waited / (computed + waited); }
};

Waiting gone_through(const std::vector<emulated::Queued>& queued, double latency) {
  const auto* compute = reinterpret_cast<const emulated::Stream*>(cuda::current_stream());
  std::map<const emulated::Stream*, double> now;
  std::map<std::uint64_t, double> recorded;
  Waiting found;
  for (const emulated::Queued& q : queued) {
    double& time = now[q.stream];
    if (q.kind == Kind::Plan) time += 1;
    if (q.kind == Kind::Messages) time += latency;
    if (q.kind == Kind::Record) recorded[q.record] = time;
    if (q.stream == compute && q.kind == Kind::Plan) found.computed += 1;
    if (q.kind != Kind::Wait || recorded[q.record] <= time) continue;
    if (q.stream == compute) {
      ++found.waits;
      found.waited += recorded[q.record] - time;
    }
    time = recorded[q.record];
  }
  return found;
}

constexpr std::int64_t kChannels = 2;
constexpr int kLayers = 4;

class Step {
 public:
  Step() {
    const Communicator world = test_world();
    const Dims map{1, kChannels, 8 * world.size(), 6};
    const DeviceMesh mesh(world, {{"domain", world.size()}});
    for (int i = 0; i < kLayers; ++i)
      net_.add<nn::Conv2d>(kChannels, kChannels, nn::ConvLayerOptions{.kernel_size = {3}, .padding = {1}});
    net_.to(Device::Cuda);
    train::sync_module(net_, mesh);
    parallel_ = std::make_unique<train::DataParallel>(net_, mesh);
    Generator random(1);
    x_ = to(randn(map, random, DType::F32, ShardSpec::make(mesh, {Shard(2)}, map)), Device::Cuda);
  }

  // What the streams are given in one step after the first.
  std::vector<emulated::Queued> run(bool overlap) {
    test_world().set_overlap(overlap);
    emulated::Journal& journal = emulated::journal();
    for (int i = 0; i < 2; ++i) {
      for (const Tensor& p : net_.parameters()) Tensor(p).zero_grad();
      journal.queued.clear();
      journal.keep = true;
      sum(square(net_(x_))).backward();
      journal.keep = false;
    }
    test_world().set_overlap(true);
    return journal.queued;
  }

 private:
  nn::Sequential net_;
  std::unique_ptr<train::DataParallel> parallel_;
  Tensor x_;
};

}  // namespace

TEST_CASE("less of a step on the device is waiting where what needs no message is computed meanwhile",
          "[nccl]") {
  const FramesFrom frames(0);
  Step step;
  const std::int64_t waits = emulated::counters().host_waits;
  const std::vector<emulated::Queued> overlapping = step.run(true);
  const std::vector<emulated::Queued> in_turn = step.run(false);
  CHECK(emulated::counters().host_waits == waits);
  for (const double latency : {0.125, 0.5}) {
    INFO("latency " << latency << ", a plan being 1");
    const Waiting with = gone_through(overlapping, latency);
    const Waiting without = gone_through(in_turn, latency);
    CHECK(with.computed == without.computed);
    // A halo of every layer, the gradient of all but the first one's, and the parameters' gradients.
    CHECK(without.waits == kLayers + (kLayers - 1) + 1);
    CHECK(without.waited == without.waits * latency);
    // Nothing is left to be computed when the last of the parameters' gradients leave.
    CHECK(with.waits == 1);
    CHECK(with.waited <= latency);
    CHECK(with.share() < 0.25 * without.share());
  }
}
