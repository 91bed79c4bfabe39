// How much of a training step is waiting, counted on a clock that no machine has a say in: it moves on by
// what convolutions compute, and by the time that a wait takes for messages that are on their way.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>
#include <vector>

#include "comm/group.h"
#include "ops/kernels.h"
#include "tests/frames_from.h"
#include "tests/step_waiting.h"

using namespace tessera;

namespace {

// In multiply-adds.
struct VirtualClock {
  std::int64_t computed = 0;
  std::int64_t waited = 0;
  std::int64_t waits = 0;  // that did not find their messages there
  std::int64_t now() const { return computed + waited; }
  double share() const { return static_cast<double>(waited) / static_cast<double>(now()); }
};
VirtualClock clock_now;

// One rank of several, alone: what the others send is zeros, and arrives `latency` after it is asked for. As
// long as nothing is late, it only records.
class LateTransport : public Transport {
 public:
  LateTransport(int rank, int size, const std::int64_t& latency)
      : rank_(rank), size_(size), latency_(latency) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool records_only() const override { return latency_ == 0; }
  void post_send(const Message&, Ticket* ticket) override { ticket->complete(); }
  void post_recv(const Message& message, Ticket* ticket) override {
    if (latency_ == 0) return ticket->complete();
    std::memset(message.data, 0, static_cast<std::size_t>(message.bytes));
    coming_.push_back({ticket, clock_now.now() + latency_});
  }
  void poll() override {
    std::erase_if(coming_, [](const Coming& c) {
      if (c.due > clock_now.now()) return false;
      c.ticket->complete();
      return true;
    });
  }
  void cancel(Ticket* ticket) override {
    std::erase_if(coming_, [&](const Coming& c) { return c.ticket == ticket; });
  }
  // Called by waits alone: the clock moves on to the next arrival.
  void idle(int) override {
    const auto next = std::min_element(coming_.begin(), coming_.end(),
                                       [](const Coming& a, const Coming& b) { return a.due < b.due; });
    if (next == coming_.end() || next->due <= clock_now.now()) return;
    ++clock_now.waits;
    clock_now.waited += next->due - clock_now.now();
  }

 private:
  struct Coming {
    Ticket* ticket;
    std::int64_t due;
  };
  int rank_;
  int size_;
  const std::int64_t& latency_;
  std::vector<Coming> coming_;
};

void computed(const Array& outputs, const Array& w) {
  if (outputs.numel() > 0) clock_now.computed += outputs.numel() * w.numel() / w.size(0);
}
void counted_forward(const cpu::ConvArgs& args) {
  cpu::conv_forward(args);
  computed(args.y, args.w);
}
void counted_backward_data(const cpu::ConvBackwardDataArgs& args) {
  cpu::conv_backward_data(args);
  computed(args.dy, args.w);
}
void counted_backward_weight(const cpu::ConvBackwardWeightArgs& args) {
  cpu::conv_backward_weight(args);
  computed(args.dy, args.dw);
}
class CountedConvolutions {
 public:
  CountedConvolutions() { put(&counted_forward, &counted_backward_data, &counted_backward_weight); }
  ~CountedConvolutions() { put(&cpu::conv_forward, &cpu::conv_backward_data, &cpu::conv_backward_weight); }
  CountedConvolutions(const CountedConvolutions&) = delete;
  CountedConvolutions& operator=(const CountedConvolutions&) = delete;

 private:
  static void put(void (*forward)(const cpu::ConvArgs&), void (*data)(const cpu::ConvBackwardDataArgs&),
                  void (*weight)(const cpu::ConvBackwardWeightArgs&)) {
    register_kernel(kernels::conv_forward, Device::Cpu, forward);
    register_kernel(kernels::conv_backward_data, Device::Cpu, data);
    register_kernel(kernels::conv_backward_weight, Device::Cpu, weight);
  }
};

const Dims kMap{1, 8, 64, 24};

// Of rank 1 of 4, whose rows have neighbours on both sides.
class Step {
 public:
  Step() : world_(make_world_group(std::make_unique<LateTransport>(1, 4, latency_))), steps_(world_, kMap) {}

  // What the clock says of one step.
  VirtualClock run(std::int64_t latency, bool overlap) {
    latency_ = latency;
    world_.set_overlap(overlap);
    steps_.run([] { clock_now = {}; });
    latency_ = 0;
    return clock_now;
  }

 private:
  std::int64_t latency_ = 0;
  Communicator world_;
  ConvolutionSteps steps_;
};

// Multiply-adds of one of the convolutions on one of 4 ranks.
constexpr std::int64_t kConvolution = 8 * 16 * 24 * 8 * 9;

}  // namespace

TEST_CASE("less of a step is waiting where what needs no message is computed meanwhile") {
  const CountedConvolutions counted;
  const FramesFrom frames(0);
  Step step;
  for (const std::int64_t latency : {kConvolution / 8, kConvolution / 2}) {
    INFO("latency " << latency << ", a convolution being " << kConvolution);
    const VirtualClock with = step.run(latency, true);
    const VirtualClock without = step.run(latency, false);
    check_overlap(with, without, latency);
  }
}
