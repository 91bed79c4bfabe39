// How much of a training step is waiting for messages, counted without a clock: what the streams were given,
// in the order of the calls, is gone through as a device would, a plan of cuDNN's being one unit of time, a
// message `latency`, and all else nothing.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "emulated/streams.h"
#include "runtime/cuda/api.h"
#include "tests/frames_from.h"
#include "tests/step_waiting.h"
#include "tests/support/world.h"

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

// What the streams are given in one step.
std::vector<emulated::Queued> given_in(ConvolutionSteps& steps, bool overlap) {
  test_world().set_overlap(overlap);
  emulated::Journal& journal = emulated::journal();
  journal.keep = true;
  steps.run([&] { journal.queued.clear(); });
  journal.keep = false;
  test_world().set_overlap(true);
  return journal.queued;
}

}  // namespace

TEST_CASE("less of a step on the device is waiting where what needs no message is computed meanwhile",
          "[nccl]") {
  const FramesFrom frames(0);
  ConvolutionSteps steps(test_world(), {1, 2, 8 * test_world().size(), 6}, Device::Cuda);
  const auto waits = [] { return emulated::counters().host_waits + cuda::host_waits(); };
  const std::int64_t before = waits();
  const std::vector<emulated::Queued> overlapping = given_in(steps, true);
  const std::vector<emulated::Queued> in_turn = given_in(steps, false);
  CHECK(waits() == before);
  for (const double latency : {0.125, 0.5}) {
    INFO("latency " << latency << ", a plan being 1");
    const Waiting with = gone_through(overlapping, latency);
    const Waiting without = gone_through(in_turn, latency);
    check_overlap(with, without, latency);
  }
}
