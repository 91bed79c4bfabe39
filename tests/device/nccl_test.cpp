// Messages from device to device: the cases of the CPU's communication tests on arrays of the device, the
// same counts as on the CPU, and no host that waits. By NCCL, or as TESSERA_CUDA_COMM says.
#include <catch2/catch.hpp>

#include "comm/device_link.h"
#include "comm/work_state.h"
#include "runtime/copy.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"
#include "runtime/graph.h"
#include "runtime/progress.h"
#include "tests/comm_cases.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

// Every kind of call once, on arrays of `device`.
struct Calls {
  Communicator comm;
  Array part, whole, scratch, landing;

  Calls(const Communicator& c, Device device) : comm(c) {
    part = Array::full({3, 5}, comm.rank() + 1, DType::F32).to(device);
    whole = Array::full({3 * comm.size(), 5}, comm.rank(), DType::F32).to(device);
    scratch = Array::full({60'000}, comm.rank() + 1, DType::F64).to(device);  // takes two rounds
    landing = Array::zeros({4}, DType::F64).to(device);
  }
  void run() const {
    const int size = comm.size();
    const int rank = comm.rank();
    comm.all_reduce(part, ReduceOp::Max).wait();
    Work slow = comm.all_reduce(scratch, ReduceOp::Max);
    comm.all_gather(whole, part).wait();
    comm.reduce_scatter(part, whole, ReduceOp::Min).wait();
    comm.broadcast(part, size - 1).wait();
    comm.all_to_all(whole, whole.contiguous()).wait();
    comm.gather(rank == 0 ? whole : Array(), part, 0).wait();
    slow.wait();
    // Only neighbours, and nothing at all from the last rank.
    std::vector<SendBuffer> sends;
    std::vector<RecvBuffer> recvs;
    if (rank + 1 < size) sends.push_back({rank + 1, scratch.raw(), 32});
    if (rank > 0) recvs.push_back({rank - 1, landing.raw(), 32});
    Work work = comm.exchange(sends, recvs, part.device());
    work.keep(scratch);
    work.done();
    work.wait();
  }
};

// All ranks, whose messages do not go by NCCL. Collective.
Communicator by_way_of_the_host() {
  const Communicator world = test_world();
  const bool linked = world.group()->endpoint().device_links;
  use_device_links(world, false);
  const Communicator staged = group_of_all(world);
  all_reduces(staged, {10});  // here they choose
  use_device_links(world, linked);
  return staged;
}

// Two calls of a group that has met begin before a capture; in it one is waited for, the other dropped.
void under_way_at_a_capture(const Communicator& comm) {
  const auto filled = [](double value) { return Array::full({4}, value, DType::F32, Device::Cuda); };
  const auto all = [](double value) { return std::vector<double>(4, value); };
  const Array a = filled(1);
  const Array b = filled(1);
  const Array total = filled(0);
  const Array one = filled(1);
  for (int i = 0; i < 500; ++i) a.fill_(1);  // the device has much to do before
  Work work = comm.all_reduce(a, ReduceOp::Sum);
  Work dropped = comm.all_reduce(b, ReduceOp::Sum);
  CudaGraph graph;
  graph.capture_begin();
  add_into(total, one);
  dropped = Work();
  for (int i = 0; i < 10'000; ++i) poll_progress();
  CHECK_THROWS_WITH(work.wait(), Catch::Contains("all_reduce: all_reduce, called at "));
  CHECK_THROWS_WITH(work.done(), Catch::Contains("wait for it before the capture or after it"));
  graph.capture_end();
  CHECK(b.to_vector() == all(comm.size()));
  work.wait();
  CHECK(a.to_vector() == all(comm.size()));
  for (int i = 0; i < 2; ++i) graph.replay();
  CHECK(total.to_vector() == all(2));
  CHECK(a.to_vector() == all(comm.size()));
}

std::vector<CommRecord> recorded(const Communicator& comm, Device device) {
  const Calls calls(comm, device);
  comm.recorder().start();
  calls.run();
  comm.recorder().stop();
  return comm.recorder().records();
}

}  // namespace

TEST_CASE("device memory is exchanged byte for byte", "[nccl]") {
  random_exchanges(test_world(), 20, 300);
  random_exchanges(test_world(), 4, 100'000);
}

TEST_CASE("sums on devices have the bits of the CPU", "[nccl]") {
  all_reduces(test_world(), {0, 1, 3, 1000, 20'000});
  reduce_scatters(test_world());
}

TEST_CASE("device memory is gathered, scattered and broadcast", "[nccl]") {
  movements(test_world());
  strided_arrays(test_world());
}

TEST_CASE("several groups of devices are under way at once", "[nccl]") { interleaved_groups(test_world()); }

TEST_CASE("sub-groups of devices come and go", "[nccl]") {
  const Communicator world = test_world();
  for (int i = 0; i < 3; ++i) {
    const Communicator group = world.split(world.rank() == 0 ? -1 : i, -world.rank());
    if (!group.defined()) continue;
    all_reduces(group, {5, 10'000});
    random_exchanges(group, 4, 2000);
    const bool linked = world.group()->endpoint().device_links;
    CHECK((group.group()->device_link() != nullptr) == (linked && group.size() > 1));
  }
}

TEST_CASE("without overlap, and by way of the host", "[nccl]") {
  const Communicator world = test_world();
  world.set_overlap(false);
  all_reduces(world, {10, 20'000});
  world.set_overlap(true);
  const Communicator staged = by_way_of_the_host();
  all_reduces(staged, {10, 20'000});
  random_exchanges(staged, 5, 2000);
  CHECK(staged.group()->device_link() == nullptr);
}

// One way only: whoever sends, too, would wait for the device between two messages.
TEST_CASE("what came by way of the host is copied before that memory serves again", "[nccl]") {
  const Communicator world = test_world();
  const int last = world.size() - 1;
  if (last == 0) return;
  const Communicator staged = by_way_of_the_host();
  std::vector<Array> arrays;
  for (int i = 0; i < 40; ++i) {
    arrays.push_back(Array::full({64}, world.rank() == 0 ? i + 1 : -1, DType::F32, Device::Cuda));
    const Array& a = arrays.back();
    const SendBuffer sends[] = {{last, a.raw(), a.nbytes()}};
    const RecvBuffer recvs[] = {{0, a.raw(), a.nbytes()}};
    if (world.rank() == 0) staged.exchange(sends, {}, Device::Cuda).wait();
    if (world.rank() == last) staged.exchange({}, recvs, Device::Cuda).wait();
  }
  if (world.rank() != 0 && world.rank() != last) return;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    CHECK(arrays[i].to_vector() == std::vector<double>(64, static_cast<double>(i + 1)));
}

// Rank 0 waits for the device, which waits for the last rank, whose host waits for a message of rank 0's
// host.
TEST_CASE("messages by way of the host move while the host waits for the device", "[nccl]") {
  const Communicator world = test_world();
  const int last = world.size() - 1;
  if (last == 0 || !world.group()->endpoint().device_links) return;
  const Communicator direct = group_of_all(world);
  all_reduces(direct, {10});
  const Communicator staged = by_way_of_the_host();
  const Deadline deadline(world, 30);
  for (int round = 1; round <= 10; ++round) {
    const Array a = Array::full({50'000}, round, DType::F32, Device::Cuda);
    const Array sum = Array::full({64}, 1, DType::F32, Device::Cuda);
    const SendBuffer sends[] = {{last, a.raw(), a.nbytes()}};
    const RecvBuffer recvs[] = {{0, a.raw(), a.nbytes()}};
    Work sent;
    if (world.rank() == 0) sent = staged.exchange(sends, {}, Device::Cuda);
    if (world.rank() == last) staged.exchange({}, recvs, Device::Cuda).wait();
    direct.all_reduce(sum, ReduceOp::Sum).wait();
    CHECK(sum.at(3) == world.size());
    sent.wait();
    CHECK(a.at(49'999) == round);
  }
}

TEST_CASE("no step of a message by way of the host waits for page-locked memory", "[nccl]") {
  const Communicator staged = by_way_of_the_host();
  const int size = staged.size();
  if (size == 1 || staged.group()->hands_over()) return;
  const Array out = Array::full({1024}, staged.rank(), DType::F32, Device::Cuda);
  const Array in = Array::full({1024}, -1, DType::F32, Device::Cuda);
  // The device is behind, and all buffers of that size that may wait for it do.
  const Array busy = Array::zeros({10}, DType::F32, Device::Cuda);
  for (int i = 0; i < 20'000; ++i) busy.fill_(i);
  const Array here = Array::full({1024}, 1, DType::F32);
  std::vector<Array> there;
  for (std::int64_t i = 0; i < cuda::most_staging_buffers(here.nbytes()); ++i)
    there.push_back(here.to(Device::Cuda));
  const std::int64_t waits = cuda::host_waits();
  const std::int64_t buffers = cuda::staging_stats().buffers;
  auto work = std::make_shared<Work::State>(staged.group(), Call{"test", std::source_location::current()});
  work->set_device(Device::Cuda);
  work->add_phase(0);
  Phase& phase = work->add_phase(1);
  phase.recv((staged.rank() + size - 1) % size, static_cast<char*>(in.raw()), in.nbytes());
  phase.send((staged.rank() + 1) % size, static_cast<char*>(out.raw()), out.nbytes());
  work->start();
  CHECK(cuda::host_waits() == waits);
  CHECK(cuda::staging_stats().buffers > buffers);  // new ones: there was something to wait for
  work->wait();
  CHECK(in.at(1023) == (staged.rank() + size - 1) % size);
}

TEST_CASE("calls by MPI that are under way before a capture go on after it", "[nccl]") {
  if (test_world().size() > 1) under_way_at_a_capture(by_way_of_the_host());
}

TEST_CASE("calls by NCCL that are under way before a capture are waited for before or after it", "[nccl]") {
  const Communicator world = test_world();
  if (world.size() == 1 || !world.group()->endpoint().device_links) return;
  world.all_reduce(Array::zeros({4}, DType::F32).to(Device::Cuda), ReduceOp::Max).wait();  // here they meet
  under_way_at_a_capture(world);
}

TEST_CASE("the same messages are counted as on the CPU", "[nccl]") {
  const Communicator world = test_world();
  const std::vector<CommRecord> cpu = recorded(world, Device::Cpu);
  const std::vector<CommRecord> device = recorded(world, Device::Cuda);
  REQUIRE(cpu.size() == device.size());
  CHECK((world.size() == 1 || cpu.size() >= 7));
  for (std::size_t i = 0; i < cpu.size(); ++i) {
    CHECK(cpu[i].kind == device[i].kind);
    CHECK(cpu[i].messages == device[i].messages);
    CHECK(cpu[i].bytes == device[i].bytes);
    CHECK(cpu[i].line == device[i].line);
  }
}

TEST_CASE("no host waits for messages between devices", "[nccl]") {
  const Calls calls(test_world(), Device::Cuda);
  calls.run();
  const std::int64_t before = cuda::host_waits();
  for (int i = 0; i < 20; ++i) calls.run();
  CHECK(cuda::host_waits() == before);
  CHECK(calls.scratch.at(59'999) == test_world().size());
}

TEST_CASE("buffers live until what was launched later may use their memory", "[nccl]") {
  const Communicator world = test_world();
  const int size = world.size();
  if (size == 1) return;
  const int next = (world.rank() + 1) % size;
  const int before = (world.rank() + size - 1) % size;
  std::vector<Array> arrived;
  for (int round = 0; round < 30; ++round) {
    Array out = Array::full({2000}, 100.0 * round + world.rank(), DType::F64, Device::Cuda);
    Array in = Array::full({2000}, -1, DType::F64, Device::Cuda);
    const SendBuffer sends[] = {{next, out.raw(), out.nbytes()}};
    const RecvBuffer recvs[] = {{before, in.raw(), in.nbytes()}};
    Work work = world.exchange(sends, recvs, Device::Cuda);
    work.keep(out);
    work.keep(in);
    if (round % 2 == 0) {
      work.wait();
      out = Array::full({2000}, -2, DType::F64, Device::Cuda);  // may get the memory of what was sent
    } else {
      out = Array();  // the work keeps it
      const Array other = Array::full({2000}, -3, DType::F64, Device::Cuda);
      work = Work();  // dropped: waited for
    }
    arrived.push_back(in);
  }
  synchronize(Device::Cuda);  // what came is there: only what was sent too late can be wrong
  for (int round = 0; round < 30; ++round)
    CHECK(arrived[static_cast<std::size_t>(round)].to_vector() ==
          std::vector<double>(2000, 100.0 * round + before));
}

TEST_CASE("memory that is given back is read by nobody any more", "[nccl]") {
  const Communicator world = test_world();
  const int size = world.size();
  if (size == 1) return;
  constexpr int kRounds = 30;
  std::vector<Array> out, in;
  for (int round = 0; round < kRounds; ++round) {
    out.push_back(Array::full({2000}, 100.0 * round + world.rank(), DType::F64, Device::Cuda));
    in.push_back(Array::full({2000}, -1, DType::F64, Device::Cuda));
  }
  for (std::size_t round = 0; round < kRounds; ++round) {
    const SendBuffer sends[] = {{(world.rank() + 1) % size, out[round].raw(), out[round].nbytes()}};
    const RecvBuffer recvs[] = {{(world.rank() + size - 1) % size, in[round].raw(), in[round].nbytes()}};
    Work work = world.exchange(sends, recvs, Device::Cuda);
    work.keep(out[round]);
    out[round] = Array();
    work.wait();
    work = Work();  // its memory goes back, and nobody takes it
  }
  synchronize(Device::Cuda);
  for (std::size_t round = 0; round < kRounds; ++round)
    CHECK(in[round].to_vector() ==
          std::vector<double>(2000, 100.0 * static_cast<double>(round) + (world.rank() + size - 1) % size));
}
