// The stand-in for a CUDA-aware MPI is as strict as a real one: it reads and writes memory of a device when
// it is called, whatever the streams have come to.
#include <catch2/catch.hpp>

#include <mpi.h>

#include <cmath>

#include "comm/device_link.h"
#include "comm/virtual.h"
#include "runtime/device.h"
#include "tests/comm_cases.h"
#include "tests/support/harness.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

constexpr int kBytes = 1000 * sizeof(double);
constexpr int kLaunches = 200;  // far more than the streams run by themselves between two calls

Array value(double v) { return Array::full({1000}, v, DType::F64, Device::Cuda); }

void launch_until(const Array& array, double last) {
  for (int i = 1; i <= kLaunches; ++i) array.copy_(value(last - kLaunches + i));
}

MPI_Request send(const Array& a, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Isend(a.raw(), kBytes, MPI_BYTE, peer, 7, harness::comm(), &request);
  return request;
}
MPI_Request recv(const Array& a, int peer) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Irecv(a.raw(), kBytes, MPI_BYTE, peer, 7, harness::comm(), &request);
  return request;
}
void finish(MPI_Request a, MPI_Request b) {
  MPI_Request requests[] = {a, b};
  for (int finished = 0, count = 0, indices[2] = {}; finished < 2; finished += count) {
    MPI_Testsome(2, requests, &count, indices, MPI_STATUSES_IGNORE);
    if (count == MPI_UNDEFINED) return;
  }
}

struct Ring {
  int next = 0, before = 0;
  Ring() {
    const Communicator world = test_world();
    next = (world.rank() + 1) % world.size();
    before = (world.rank() + world.size() - 1) % world.size();
  }
};

}  // namespace

TEST_CASE("what is sent is what the device has come to", "[aware]") {
  const Ring ring;
  const Array out = value(0);
  const Array in = value(-1);
  for (const bool waits : {false, true}) {
    synchronize(Device::Cuda);
    launch_until(out, waits ? 2000 : 1000);
    if (waits) synchronize(Device::Cuda);
    const MPI_Request came = recv(in, ring.before);
    const MPI_Request sent = send(out, ring.next);
    finish(came, sent);
    CHECK((in.at(999) == 2000) == waits);
  }
}

TEST_CASE("what is received is written over by what was launched before", "[aware]") {
  const Ring ring;
  const Array in = value(-1);
  for (const bool waits : {false, true}) {
    const Array out = value(5000);
    synchronize(Device::Cuda);
    launch_until(in, 1000);
    if (waits) synchronize(Device::Cuda);
    const MPI_Request came = recv(in, ring.before);
    const MPI_Request sent = send(out, ring.next);
    finish(came, sent);
    CHECK((in.at(999) == 5000) == waits);
  }
}

TEST_CASE("memory that is offered for a message loses what it held at once", "[aware]") {
  const Ring ring;
  const Array in = value(-1);
  const Array seen = value(0);
  const Array out = value(1);
  synchronize(Device::Cuda);
  const MPI_Request came = recv(in, ring.before);
  seen.copy_(in);
  synchronize(Device::Cuda);
  CHECK(std::isnan(seen.at(0)));
  test_world().barrier();  // nothing has come before that
  finish(came, send(out, ring.next));
  CHECK(in.at(0) == 1);
}

TEST_CASE("virtual ranks are no MPI: they are never given addresses of the device", "[aware]") {
  run_virtual_ranks(2, [](const Communicator& world) {
    use_device_links(world, false);
    use_cuda_aware_mpi(world, CudaAwareMpi::Always);
    comm_cases::all_reduces(world, {10, 20'000});
    comm_cases::expect(!world.group()->hands_over() && works_by_mpi(world).handed == 0,
                       "a thread was given an address of the device");
    comm_cases::expect(works_by_mpi(world).staged > 0, "nothing was staged");
  });
}
