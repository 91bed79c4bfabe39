// Runs of several ranks that nccl_job_test.py looks at from outside: nccl_job_program MODE
#include <cuda_runtime_api.h>
#include <mpi.h>
#include <nccl.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>
#include <utility>

#include "comm/device_link.h"
#include "runtime/device.h"
#include "train/program.h"

using namespace tessera;

namespace {

Array ones(std::int64_t n) { return Array::full({n}, 1, DType::F32, Device::Cuda); }

// The ranks disagree on what they exchange.
void mismatch(const Communicator& world) {
  const Array a = ones(world.rank() == 0 ? 4 : 5);
  const SendBuffer sends[] = {{1, a.raw(), a.nbytes()}};
  const RecvBuffer recvs[] = {{0, a.raw(), a.nbytes()}};
  if (world.rank() == 0) world.exchange(sends, {}, Device::Cuda).wait();
  if (world.rank() == 1) world.exchange({}, recvs, Device::Cuda).wait();
  a.at(0);
}

// Rank 0 waits for what nobody sends, and is to say so: the others wait for it longer.
void silence(const Communicator& world) {
  const Array a = ones(4);
  const RecvBuffer recvs[] = {{1, a.raw(), a.nbytes()}};
  if (world.rank() == 0) world.exchange({}, recvs, Device::Cuda).wait();
  if (world.rank() > 0) world.exchange({}, {}, Device::Cuda).wait();
  a.at(0);
  sleep(5);
  world.barrier();
}

// Rank 1 sends what nobody takes.
void surplus(const Communicator& world) {
  const Array a = ones(4);
  const SendBuffer sends[] = {{0, a.raw(), a.nbytes()}};
  if (world.rank() == 1) world.exchange(sends, {}, Device::Cuda).wait();
  if (world.rank() != 1) world.exchange({}, {}, Device::Cuda).wait();
  a.at(0);
  world.barrier();
}

// Two groups hold the same two ranks, which call them in different orders.
void crossed(const Communicator& world) {
  Communicator groups[] = {world.subgroup({{0, 1}}), world.subgroup({{0, 1}})};
  const Array all[] = {ones(4), ones(4)};
  for (int i = 0; i < 2; ++i) groups[i].all_reduce(all[i], ReduceOp::Sum).wait();
  if (world.rank() == 1) std::swap(groups[0], groups[1]);
  Work first = groups[0].all_reduce(all[0], ReduceOp::Sum);  // nothing waits for the other one
  Work second = groups[1].all_reduce(all[1], ReduceOp::Sum);
  first.wait();
  second.wait();
  std::printf("sums %g %g\n", all[0].at(0), all[1].at(0));
}

// Rank 0 writes what it sends while MPI sends it.
void changed(const Communicator& world) {
  Array a = ones(1 << 20);
  synchronize(Device::Cuda);
  MPI_Request request = MPI_REQUEST_NULL;
  const int bytes = static_cast<int>(a.nbytes());
  if (world.rank() == 0) {
    MPI_Isend(a.raw(), bytes, MPI_BYTE, 1, 0, MPI_COMM_WORLD, &request);
    a.copy_(Array::zeros({1 << 20}, DType::F32).to(Device::Cuda));
    synchronize(Device::Cuda);
  } else {
    MPI_Irecv(a.raw(), bytes, MPI_BYTE, 0, 0, MPI_COMM_WORLD, &request);
  }
  for (int count = 0, index = 0; count == 0;) MPI_Testsome(1, &request, &count, &index, MPI_STATUSES_IGNORE);
  world.barrier();
}

// All ranks begin a communicator with one device, which the library would not.
void one_device(const Communicator& world) {
  ncclUniqueId id{};
  if (world.rank() == 0) ncclGetUniqueId(&id);
  MPI_Bcast(&id, sizeof id, MPI_BYTE, 0, MPI_COMM_WORLD);
  ncclComm_t comm = nullptr;
  ncclCommInitRankConfig(&comm, world.size(), id, world.rank(), nullptr);
}

// Says which device each rank drives, and how its messages go.
void tell(const Communicator& world) {
  const Array a = ones(4);
  world.all_reduce(a, ReduceOp::Sum).wait();
  int device = -1;
  cudaGetDevice(&device);
  std::printf("rank %d device %d sum %g way %s\n", world.rank(), device, a.at(0),
              world.group()->device_link() != nullptr ? "nccl"
              : world.group()->hands_over()           ? "device"
                                                      : "host");
}

}  // namespace

int main(int argc, char** argv) {
  return run_program(argc, argv, [](Runtime& runtime, int count, char** values) {
    const std::string_view mode = count > 1 ? values[1] : "";
    if (mode == "mismatch") mismatch(runtime.world());
    if (mode == "silence") silence(runtime.world());
    if (mode == "surplus") surplus(runtime.world());
    if (mode == "crossed") crossed(runtime.world());
    if (mode == "changed") changed(runtime.world());
    if (mode == "one device") one_device(runtime.world());
    if (mode == "tell") tell(runtime.world());
    return 0;
  });
}
