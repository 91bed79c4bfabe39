// Convolutions compute while their halo travels: what the compute stream is given before it waits for the
// halo.
#include <catch2/catch.hpp>

#include <cstdint>
#include <limits>

#include "emulated/streams.h"
#include "ops/ops.h"
#include "runtime/cuda/api.h"
#include "tests/frames_from.h"
#include "tests/support/world.h"
#include "train/scatter.h"

using namespace tessera;

namespace {

constexpr std::int64_t kNever = std::numeric_limits<std::int64_t>::max();

Tensor map_of_ones() {
  const DeviceMesh mesh(test_world(), {{"domain", test_world().size()}});
  Tensor x = to(train::scatter(ones({1, 2, 28, 6}), 0, mesh, {Shard(2)}), Device::Cuda);
  return x.set_requires_grad();
}

// cuDNN's plans that the compute stream is given after the first message of f, and before it waits for one.
// -1: there is no message, or nobody waits for it.
template <class F>
int plans_while_messages_travel(const F& f) {
  const auto* compute = reinterpret_cast<const emulated::Stream*>(cuda::current_stream());
  emulated::Journal& journal = emulated::journal();
  journal.queued.clear();
  journal.keep = true;
  f();
  journal.keep = false;
  int plans = -1;
  for (const emulated::Queued& q : journal.queued) {
    if (plans < 0 && q.stream != compute && q.kind == emulated::Kind::Messages) plans = 0;
    if (plans < 0 || q.stream != compute) continue;
    if (q.kind == emulated::Kind::Wait) return plans;
    plans += q.kind == emulated::Kind::Plan ? 1 : 0;
  }
  return -1;
}

struct Overlap {
  int forward = 0;
  int backward = 0;
};

// Of the second of two steps: in the first the ranks meet.
Overlap overlap(std::int64_t frames_from) {
  const FramesFrom frames(frames_from);
  const Tensor x = map_of_ones();
  const Tensor w = to(ones({3, 2, 3, 3}), Device::Cuda);
  Overlap seen;
  for (int i = 0; i < 2; ++i) {
    Tensor y;
    seen.forward = plans_while_messages_travel([&] { y = conv2d(x, w, Tensor(), {.padding = {1}}); });
    const Tensor loss = sum(y);
    seen.backward = plans_while_messages_travel([&] { loss.backward(); });
  }
  return seen;
}

}  // namespace

TEST_CASE("the inside of a convolution is launched before the device waits for the halo", "[nccl]") {
  const Overlap framed = overlap(0);
  CHECK(framed.forward == 1);
  CHECK(framed.backward == 1);
  // Where all comes from one buffer there is nothing to launch.
  const Overlap buffered = overlap(kNever);
  CHECK(buffered.forward == 0);
  CHECK(buffered.backward == 0);
}
