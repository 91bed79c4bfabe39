// Messages between devices by MPI that is given the device's addresses: the cases of the communication tests,
// no staging memory, deadlines and lengths as for any other message. With an MPI that does not say that it
// takes them only that is shown.
#include <catch2/catch.hpp>

#include <cstdio>

#include "comm/device_link.h"
#include "comm/mpi_cuda.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"
#include "tests/comm_cases.h"
#include "tests/support/groups.h"
#include "tests/support/world.h"

using namespace tessera;
using namespace tessera::comm_cases;

namespace {

// All ranks, whose messages go by MPI. Collective.
Communicator by_mpi(CudaAwareMpi choice) {
  const Communicator world = test_world();
  use_device_links(world, false);
  use_cuda_aware_mpi(world, choice);
  const Communicator group = group_of_all(world);
  const Array first = Array::zeros({1}, DType::F32).to(Device::Cuda);
  group.all_reduce(first, ReduceOp::Max).wait();  // here they choose
  use_device_links(world, true);
  use_cuda_aware_mpi(world, CudaAwareMpi::Auto);
  return group;
}

bool nothing_to_show() { return !mpi_is_cuda_aware() || test_world().size() == 1; }

// To the right neighbour, as many bytes each as asked for.
struct Shift {
  Array out, in;
  Shift(const Communicator& comm, std::int64_t sent, std::int64_t received)
      : out(Array::full({sent}, comm.rank(), DType::F64).to(Device::Cuda)),
        in(Array::zeros({received}, DType::F64).to(Device::Cuda)) {}
  void run(const Communicator& comm) const {
    const int size = comm.size();
    const SendBuffer sends[] = {{(comm.rank() + 1) % size, out.raw(), out.nbytes()}};
    const RecvBuffer recvs[] = {{(comm.rank() + size - 1) % size, in.raw(), in.nbytes()}};
    Work work = comm.exchange(sends, recvs, Device::Cuda);
    work.keep(out);
    work.keep(in);
    work.wait();
  }
};

}  // namespace

TEST_CASE("MPI says whether it takes memory of devices", "[aware]") {
  std::printf("MPI says that it takes memory of devices: %s\n", mpi_is_cuda_aware() ? "yes" : "no");
  std::fflush(stdout);
  const Communicator auto_group = by_mpi(CudaAwareMpi::Auto);
  CHECK(auto_group.group()->hands_over() == (mpi_is_cuda_aware() && auto_group.size() > 1));
  CHECK_FALSE(by_mpi(CudaAwareMpi::Never).group()->hands_over());
}

TEST_CASE("MPI moves memory of devices", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator group = by_mpi(CudaAwareMpi::Auto);
  const MpiWorks before = works_by_mpi(group);
  random_exchanges(group, 20, 300);
  random_exchanges(group, 4, 100'000);
  all_reduces(group, {0, 1, 3, 1000, 20'000});
  reduce_scatters(group);
  movements(group);
  strided_arrays(group);
  interleaved_groups(group);
  CHECK(works_by_mpi(group).handed > before.handed + 20);
  CHECK(works_by_mpi(group).staged == before.staged);
}

TEST_CASE("in pieces, and without overlap", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator group = by_mpi(CudaAwareMpi::Auto);
  group.set_message_limit(1000);
  random_exchanges(group, 4, 5000);
  group.set_message_limit(std::int64_t{1} << 30);
  group.set_overlap(false);
  all_reduces(group, {10, 20'000});
  group.set_overlap(true);
}

TEST_CASE("messages that MPI takes from the device need no page-locked memory", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator handed = by_mpi(CudaAwareMpi::Auto);
  const Communicator staged = by_mpi(CudaAwareMpi::Never);
  constexpr std::int64_t kElements = 600'000;  // of a size that nothing else here has
  const Shift shift(handed, kElements, kElements);
  Array sum = Array::full({kElements}, 1, DType::F64).to(Device::Cuda);
  // All buffers of that size that there are are held, so that whoever needs one takes it from the driver.
  const auto taken_by = [&](const Communicator& comm) {
    std::vector<std::unique_ptr<Staging>> all;
    for (std::int64_t i = 0; i < cuda::most_staging_buffers(shift.out.nbytes()) + 1; ++i)
      all.push_back(make_staging(Device::Cuda, shift.out.nbytes()));
    const std::int64_t held = cuda::staging_stats().bytes;
    shift.run(comm);
    comm.all_reduce(sum, ReduceOp::Max).wait();
    return cuda::staging_stats().bytes - held;
  };
  CHECK(taken_by(handed) == 0);
  CHECK(taken_by(staged) > 0);
  CHECK(shift.in.at(kElements - 1) == (handed.rank() + handed.size() - 1) % handed.size());
}

TEST_CASE("one rank that does not want it is enough", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator group = by_mpi(test_world().rank() == 0 ? CudaAwareMpi::Never : CudaAwareMpi::Always);
  CHECK_FALSE(group.group()->hands_over());
  random_exchanges(group, 4, 1000);
}

TEST_CASE("lengths that disagree are an error of both lengths", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator group = by_mpi(CudaAwareMpi::Auto);
  const Shift shift(group, 4, 8);
  CHECK_THROWS_WITH(shift.run(group), Catch::Contains("32 bytes came, but 64 were expected"));
  const Communicator next = by_mpi(CudaAwareMpi::Auto);
  const Shift longer(next, 80'000, 8);
  CHECK_THROWS_WITH(longer.run(next), Catch::Contains("message from rank"));
  random_exchanges(by_mpi(CudaAwareMpi::Auto), 4, 1000);
}

TEST_CASE("a message that nobody sends is refused after the deadline", "[aware]") {
  if (nothing_to_show()) return;
  const Communicator group = by_mpi(CudaAwareMpi::Auto);
  {
    const Deadline soon(group, 0.3);
    const Array in = Array::zeros({4}, DType::F32).to(Device::Cuda);
    const RecvBuffer recvs[] = {{(group.rank() + 1) % group.size(), in.raw(), in.nbytes()}};
    Work work = group.exchange({}, recvs, Device::Cuda);
    work.keep(in);
    CHECK_THROWS_WITH(work.wait(),
                      Catch::Contains("waited 0.3 s") && Catch::Contains("for messages from rank"));
  }
  random_exchanges(by_mpi(CudaAwareMpi::Auto), 4, 1000);
}
