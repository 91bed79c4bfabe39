// What a training step asks of the driver once it is steady, by what the emulated device itself counts: a
// wait or memory that the library's own counters (graph_training_test.cpp) know nothing of would show here.
#include <cuda_runtime_api.h>
#include <catch2/catch.hpp>

#include <array>

#include "emulated/streams.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"
#include "tests/device/small_runs.h"

namespace ts = tessera;
using namespace tessera::device_tests;

namespace {

using Counters = ts::emulated::Counters;

// Losses that are read before: enough for every graph to be captured.
constexpr int kRead = 9;
constexpr int kSteps = 4;

struct Asked {
  Counters device;
  std::int64_t staging = 0;  // buffers, as the library counts them
  // Also those in which the library asks again and again, which the device cannot tell.
  std::int64_t waits = 0;
};
Asked so_far() {
  return {ts::emulated::counters(), ts::cuda::staging_stats().buffers, ts::cuda::host_waits()};
}

template <class Trainer>
void check_steady(Trainer& trainer) {
  for (int i = 0; i < kRead; ++i) trainer.step();
  const Asked before = so_far();
  for (int i = 0; i < kSteps; ++i) trainer.advance();
  const Asked after = so_far();
  CHECK(after.device.host_waits == before.device.host_waits);
  CHECK(after.waits == before.waits);
  CHECK(after.device.pageable_copies == before.device.pageable_copies);
  CHECK(after.device.allocations == before.device.allocations);
  // Page-locked memory is taken where the host runs ahead; none of it by another way than the one that bounds
  // it.
  CHECK(after.device.pinned_allocations - before.device.pinned_allocations == after.staging - before.staging);
  CHECK(after.device.kernels + after.device.graph_launches >
        before.device.kernels + before.device.graph_launches);
}

}  // namespace

TEST_CASE("the emulated device counts waits and memory that go past the library", "[device]") {
  ts::test_world();
  ts::synchronize(ts::Device::Cuda);
  const Counters before = ts::emulated::counters();
  void* there = nullptr;
  void* locked = nullptr;
  cudaStream_t stream = nullptr;
  std::array<float, 4> here{};
  REQUIRE(cudaMalloc(&there, sizeof(here)) == cudaSuccess);
  REQUIRE(cudaHostAlloc(&locked, sizeof(here), cudaHostAllocDefault) == cudaSuccess);
  REQUIRE(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
  const auto copy = [&](void* to, const void* from) {
    return cudaMemcpyAsync(to, from, sizeof(here), cudaMemcpyDefault, stream);
  };
  REQUIRE(copy(there, locked) == cudaSuccess);
  const Counters given = ts::emulated::counters();
  CHECK(given.allocations == before.allocations + 1);
  CHECK(given.pinned_allocations == before.pinned_allocations + 1);
  CHECK(given.host_waits == before.host_waits);
  CHECK(given.pageable_copies == before.pageable_copies);
  REQUIRE(copy(there, here.data()) == cudaSuccess);  // the driver stages it, and may wait
  REQUIRE(copy(here.data(), there) == cudaSuccess);  // waits
  REQUIRE(cudaStreamSynchronize(stream) == cudaSuccess);
  REQUIRE(cudaStreamDestroy(stream) == cudaSuccess);
  REQUIRE(cudaFree(there) == cudaSuccess);
  REQUIRE(cudaFreeHost(locked) == cudaSuccess);
  const Counters after = ts::emulated::counters();
  CHECK(after.pageable_copies == before.pageable_copies + 2);
  CHECK(after.host_waits == before.host_waits + 4);
}

TEST_CASE("steady steps of the wind model ask the driver for nothing", "[device]") {
  const bool as_graph = GENERATE(false, true);
  CAPTURE(as_graph);
  ts::winds::TestRun run(small_winds(as_graph), all_ranks());
  check_steady(run.trainer);
}

TEST_CASE("steady steps of the relief model ask the driver for nothing", "[device]") {
  const bool as_graph = GENERATE(false, true);
  CAPTURE(as_graph);
  ts::relief::TestRun run(ts::test_world(), small_relief(as_graph), all_ranks());
  check_steady(run.trainer);
}
