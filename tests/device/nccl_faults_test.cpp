// Messages between devices that fail, on the emulated device: whoever waits is told, and nothing hangs.
#include <catch2/catch.hpp>
#include <chrono>
#include <optional>

#include "comm/device_link.h"
#include "comm/reduce.h"
#include "comm/virtual.h"
#include "comm/work_state.h"
#include "emulated/nccl.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/seconds.h"
#include "tests/comm_cases.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;
using emulated::NcclFault;
using Clock = std::chrono::steady_clock;

namespace {

Communicator all_again() { return group_of_all(test_world()); }

class Fault {
 public:
  explicit Fault(NcclFault fault) { emulated::set_nccl_fault(fault); }
  ~Fault() { emulated::set_nccl_fault(NcclFault::None); }
  Fault(const Fault&) = delete;
  Fault& operator=(const Fault&) = delete;
};

Array ones() { return Array::full({10}, 1, DType::F32, Device::Cuda); }

}  // namespace

TEST_CASE("messages go from device to device", "[nccl]") {
  const long long sends = emulated::nccl_counters().sends;
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Sum).wait();
  CHECK(x.at(3) == group.size());
  CHECK(emulated::nccl_counters().sends == sends + group.size() - 1);
}

TEST_CASE("an error of NCCL is an error of the call that waits, and of all after it", "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Sum).wait();
  {
    const Fault fault(NcclFault::Fails);
    Work work = group.all_reduce(x, ReduceOp::Sum);
    const std::string text = message_of([&] {
      for (int i = 0; i < 100'000 && !work.done(); ++i) {
      }
    });
    INFO(text);
    CHECK(contains(text, "all_reduce"));
    CHECK(contains(text, "remote process exited"));
    CHECK(contains(text, group.rank() == 0 ? " 1" : " 0"));
    CHECK(contains(message_of([&] { work.wait(); }), "remote process exited"));
  }
  Work later = group.all_reduce(x, ReduceOp::Sum);
  CHECK(contains(message_of([&] { later.wait(); }), "remote process exited"));
  // Other groups go on.
  all_reduces(all_again(), {10, 10'000});
}

TEST_CASE("a device that hangs shows where the host waits for it, with the names of what is under way",
          "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Sum).wait();
  synchronize(Device::Cuda);
  {
    const Deadline soon(group, 0.5);
    const Fault fault(NcclFault::Stalls);
    const auto start = Clock::now();
    group.all_reduce(x, ReduceOp::Sum).wait();  // makes a stream wait, not the host
    const std::string text = message_of([&] { x.at(0); });
    CHECK(seconds_since(start) < 60);
    CHECK(contains(text, "all_reduce"));
    CHECK(contains(text, "the host has waited 0.5 s for the device"));
    CHECK(contains(text, "nccl_faults_test.cpp"));
  }
  test_world().barrier();
  all_reduces(all_again(), {10});
}

TEST_CASE("a replay that hangs is named where the host waits for it, and is the last one", "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Max).wait();
  CudaGraph graph;
  graph.capture_begin();
  for (int i = 0; i < 3; ++i) group.all_reduce(x, ReduceOp::Max).wait();
  graph.capture_end();
  const long long sends = emulated::nccl_counters().sends;
  const std::int64_t calls = group.recorder().totals().calls;
  for (int i = 0; i < 2; ++i) graph.replay();
  CHECK(x.at(3) == 1);
  CHECK(emulated::nccl_counters().sends == sends + 6 * (group.size() - 1));
  CHECK(group.recorder().totals().calls == calls + 6);
  {
    const Deadline soon(group, 0.5);
    const Fault fault(NcclFault::Stalls);
    graph.replay();
    const std::string text = message_of([&] { x.at(0); });
    CHECK(contains(text, "the host has waited 0.5 s for the device"));
    CHECK(contains(text, "the first of 3 calls in a CUDA graph"));
  }
  CHECK(contains(message_of([&] { graph.replay(); }), "the host has waited 0.5 s"));
  test_world().barrier();
  all_reduces(all_again(), {10});
}

TEST_CASE("a device that is far behind its host is no device that hangs", "[nccl]") {
  const Array x = ones();
  const Array sum = ones();
  const double ranks = test_world().size();
  std::optional<Deadline> soon;  // also when the group ends
  const Fault slow(NcclFault::Slow);
  Clock::time_point start;
  {
    const Communicator group = all_again();
    group.all_reduce(x, ReduceOp::Max).wait();
    synchronize(Device::Cuda);
    soon.emplace(test_world(), 2);
    const auto behind = [&] {
      for (int i = 0; i < 25; ++i) group.all_reduce(x, ReduceOp::Max).wait();
    };
    start = Clock::now();
    behind();
    CHECK(x.at(3) == 1);
    CHECK(seconds_since(start) > 2);
    start = Clock::now();
    behind();
    group.all_reduce(sum, ReduceOp::Sum).wait();
  }  // here the group ends, and waits as long
  CHECK(seconds_since(start) > 2);
  CHECK(sum.at(3) == ranks);  // what an aborted one would not have
}

TEST_CASE("a rank that never sends ends in an error", "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Sum).wait();
  synchronize(Device::Cuda);
  {
    const Deadline soon(group, 1);
    if (group.rank() == 0) {
      const Array in = ones();
      const RecvBuffer recvs[] = {{1, in.raw(), in.nbytes()}};
      Work work = group.exchange({}, recvs, Device::Cuda);
      work.keep(in);
      work.wait();
      CHECK(contains(message_of([&] { in.at(0); }), "exchange with rank 1"));
    } else {
      group.exchange({}, {}, Device::Cuda).wait();
    }
  }
  test_world().barrier();
}

TEST_CASE("a communicator that one rank never begins is refused on all of them", "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  {
    const Deadline soon(group, 2);
    const Fault fault(group.rank() + 1 == group.size() ? NcclFault::NeverBegins : NcclFault::None);
    const std::string text = message_of([&] { group.all_reduce(x, ReduceOp::Sum).wait(); });
    INFO(text);
    CHECK(contains(text, "all_reduce"));
    CHECK(contains(text, fmt::format("NCCL did not start in a group of {} ranks", group.size())));
    CHECK(contains(text, "ncclCommInitRankConfig was not over after 2 s on rank 0"));
  }
  test_world().barrier();
  all_reduces(all_again(), {10, 10'000});
}

TEST_CASE("messages that NCCL never comes to end with the deadline, on every rank", "[nccl]") {
  const Communicator group = all_again();
  const Array x = ones();
  group.all_reduce(x, ReduceOp::Sum).wait();
  CHECK(x.at(3) == group.size());
  const long long groups = emulated::nccl_counters().groups;
  {
    const Deadline soon(group, 0.5);
    const Fault fault(NcclFault::NeverPosts);
    const auto start = Clock::now();
    const std::string text = message_of([&] { group.all_reduce(x, ReduceOp::Sum).wait(); });
    INFO(text);
    CHECK(seconds_since(start) < 60);
    CHECK(contains(text, "all_reduce with rank"));
    CHECK(contains(text, fmt::format("this is rank {}", group.rank())));
    CHECK(contains(text, "ncclGroupEnd was not over after 0.5 s"));
  }
  CHECK(emulated::nccl_counters().groups == groups);
  CHECK(
      contains(message_of([&] { group.all_reduce(x, ReduceOp::Sum).wait(); }), "ncclGroupEnd was not over"));
  test_world().barrier();
  all_reduces(all_again(), {10, 10'000});
}

TEST_CASE("a reduction over more ranks than a kernel combines is refused before its messages", "[nccl]") {
  const Array x = ones();
  const int most = most_reduction_blocks(Device::Cuda);
  for (const int ranks : {most, most + 1}) {
    const Communicator many = recording_communicator(0, ranks);
    const Array all = Array::empty({10 * ranks}, DType::F32, Device::Cuda);
    const auto sum = [&] { many.all_reduce(x, ReduceOp::Sum).wait(); };
    const auto scatter = [&] { many.reduce_scatter(x, all, ReduceOp::Sum).wait(); };
    if (ranks == most) {
      sum();
      scatter();
    } else {
      const std::string why =
          fmt::format("a group of {} ranks was given on device cuda, allowed are up to {}", ranks, most);
      CHECK(message_of(sum) == "all_reduce: " + why);
      CHECK(message_of(scatter) == "reduce_scatter: " + why);
    }
  }
  const Communicator group = all_again();
  group.all_reduce(x, ReduceOp::Max).wait();
  const long long sends = emulated::nccl_counters().sends;
  set_most_reduction_blocks(Device::Cuda, group.size() - 1);
  const std::string text = message_of([&] { group.all_reduce(x, ReduceOp::Max).wait(); });
  set_most_reduction_blocks(Device::Cuda, most);
  CHECK(contains(text, "allowed are up to"));
  CHECK(emulated::nccl_counters().sends == sends);
  all_reduces(group, {10, 10'000});  // which goes on
}

// One rank's call fails when its messages are under way; the others hear nothing of it.
TEST_CASE("what follows a call that failed between its messages comes after these", "[nccl]") {
  const Communicator group = all_again();
  const int next = (group.rank() + 1) % group.size();
  const int before = (group.rank() + group.size() - 1) % group.size();
  const auto filled = [](double value) { return Array::full({2000}, value, DType::F64, Device::Cuda); };
  group.all_reduce(ones(), ReduceOp::Max).wait();
  std::vector<Array> arrived;
  constexpr int kRounds = 30;
  for (int round = 0; round < kRounds; ++round) {
    const Array out = filled(100.0 * round + group.rank());
    const Array in = filled(-1);
    auto state = std::make_shared<Work::State>(group.group(), Call{"test", std::source_location::current()});
    state->set_device(Device::Cuda);
    Phase& phase = state->add_phase(0);
    phase.recv(before, static_cast<char*>(in.raw()), in.nbytes());
    phase.send(next, static_cast<char*>(out.raw()), out.nbytes());
    const bool fails = group.rank() == 0;
    phase.finish = [&] {
      if (fails) throw std::runtime_error("no more");
    };
    state->start();
    if (fails) {
      CHECK_THROWS_WITH(state->wait(), "no more");
      out.fill_(-2);
      in.fill_(-3);
    } else {
      state->wait();
    }
    arrived.push_back(in);
  }
  synchronize(Device::Cuda);
  for (int round = 0; round < kRounds; ++round)
    CHECK(arrived[static_cast<std::size_t>(round)].to_vector() ==
          std::vector<double>(2000, group.rank() == 0 ? -3 : 100.0 * round + before));
}
