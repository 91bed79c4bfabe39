// What the emulated device refuses as a real one does, and what of it is noticed that a real one may let
// pass.
#include <cuda_runtime_api.h>
#include <catch2/catch.hpp>

#include <cmath>
#include <cstdint>
#include <vector>

#include "emulated/memory.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/kernel_context.h"
#include "runtime/error.h"
#include "tests/device/survives.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

struct Fill : cuda::Independent {
  cuda::Ptr<float> out;
  std::int64_t from = 0;
  TS_DEVICE void operator()(const cuda::Block& block) const { out[from + cuda::global_thread(block)] = 3; }
};
struct Add : cuda::Independent {
  cuda::Ptr<float> out;
  cuda::Ptr<float> from;
  TS_DEVICE void operator()(const cuda::Block&) const { out[0] = from[0] + 1; }
};
struct Pair : cuda::Cooperative {
  static constexpr int kThreads = 64;
  TS_DEVICE void operator()(const cuda::Block&) const {}
};

template <class Kernel>
std::string about(const Kernel& kernel, const cuda::LaunchShape& shape) {
  cuda::launch(kernel, shape, cuda::compute_stream());
  try {
    cuda::check_launch("test");
  } catch (const Error& e) {
    return e.message();
  }
  return "";
}

float* block_of(std::size_t floats) {
  cuda::use_device();
  void* p = nullptr;
  REQUIRE(cudaMalloc(&p, floats * sizeof(float)) == cudaSuccess);
  return static_cast<float*>(p);
}
float value_at(const float* p) {
  float value = 0;
  CHECK(cudaMemcpyAsync(&value, p, sizeof value, cudaMemcpyDefault, cuda::compute_stream()) == cudaSuccess);
  cuda::synchronize(cuda::compute_stream());
  return value;
}

}  // namespace

TEST_CASE("launches that a device has no room for are refused where they are checked", "[device]") {
  float* p = block_of(1024);
  const Fill fill{{}, p, 0};
  CHECK(about(fill, {4, 256, 0}) == "");
  CHECK(about(fill, {1, 256, 48 << 10}) == "");
  CHECK(value_at(p + 1023) == 3);
  const std::string resources = "cuda: test failed: too many resources requested for launch";
  const std::string configuration = "cuda: test failed: invalid configuration argument";
  CHECK(about(fill, {1, 257, 0}) == resources);
  CHECK(about(Pair{}, {1, 65, 0}) == resources);
  CHECK(about(fill, {1, 1025, 0}) == configuration);
  CHECK(about(fill, {1, 0, 0}) == configuration);
  CHECK(about(fill, {-1, 256, 0}) == configuration);
  CHECK(about(fill, {1, 256, (48 << 10) + 1}) == "cuda: test failed: invalid argument");
  CHECK(about(fill, {0, 256, 0}) == "");  // nothing is launched
  CHECK(about(fill, {1, 1, 0}) == "");    // no error is left
  CHECK(cudaFree(p) == cudaSuccess);
}

TEST_CASE("copies stay within their blocks and go where they say", "[device]") {
  float* p = block_of(256);
  void* pinned = nullptr;
  REQUIRE(cudaHostAlloc(&pinned, 256, 0) == cudaSuccess);
  std::vector<float> here(1024, 1);
  const auto copy = [](void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
    return cudaMemcpyAsync(to, from, bytes, kind, cuda::compute_stream());
  };
  CHECK(copy(p, here.data(), 1024, cudaMemcpyHostToDevice) == cudaSuccess);
  CHECK(copy(p, here.data(), 1025, cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  CHECK(copy(here.data(), p, 1024, cudaMemcpyDeviceToHost) == cudaSuccess);
  CHECK(copy(here.data(), p + 1, 1024, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(here.data(), p - 1, 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidValue);
  CHECK(copy(pinned, p, 256, cudaMemcpyDefault) == cudaSuccess);
  CHECK(copy(pinned, p, 257, cudaMemcpyDefault) == cudaErrorInvalidValue);
  CHECK(copy(p, here.data(), 4, cudaMemcpyDeviceToHost) == cudaErrorInvalidMemcpyDirection);
  CHECK(copy(p, here.data(), 4, cudaMemcpyDeviceToDevice) == cudaErrorInvalidMemcpyDirection);
  CHECK(copy(here.data(), p, 4, cudaMemcpyHostToDevice) == cudaErrorInvalidMemcpyDirection);
  CHECK(cudaMemsetAsync(p, 0, 1024, cuda::compute_stream()) == cudaSuccess);
  CHECK(cudaMemsetAsync(p, 0, 1025, cuda::compute_stream()) == cudaErrorInvalidValue);
  cudaGetLastError();
  CHECK(cudaFree(p) == cudaSuccess);
  CHECK(cudaFreeHost(pinned) == cudaSuccess);
}

TEST_CASE("time is measured between events that were made for it and have come", "[device]") {
  cuda::use_device();
  cudaEvent_t timed[2];
  cudaEvent_t untimed = nullptr;
  for (cudaEvent_t& e : timed) REQUIRE(cudaEventCreateWithFlags(&e, cudaEventDefault) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming) == cudaSuccess);
  float ms = -1;
  CHECK(cudaEventElapsedTime(&ms, timed[0], timed[1]) == cudaErrorInvalidResourceHandle);
  for (cudaEvent_t e : {timed[0], timed[1], untimed})
    REQUIRE(cudaEventRecord(e, cuda::compute_stream()) == cudaSuccess);
  cuda::synchronize(cuda::compute_stream());
  CHECK(cudaEventElapsedTime(&ms, timed[0], timed[1]) == cudaSuccess);
  CHECK(ms >= 0);
  CHECK(cudaEventElapsedTime(&ms, timed[0], untimed) == cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  for (cudaEvent_t e : {timed[0], timed[1], untimed}) CHECK(cudaEventDestroy(e) == cudaSuccess);
}

TEST_CASE("what reads memory that went back to the driver, or writes past a block's end, is noticed",
          "[device]") {
  constexpr std::size_t kFloats = 1001;  // the end is no multiple of 16 bytes
  const auto run = [](const auto& kernel) {
    about(kernel, {1, 1, 0});
    cuda::synchronize(cuda::compute_stream());
  };
  // Blocks are of the processes that may end: their pages are shared with this one.
  const auto writes = [&](std::int64_t at) {
    return survives([&] {
      float* p = block_of(kFloats);
      run(Fill{{}, p, at});
      cudaFree(p);
    });
  };
  const auto reads = [&](std::int64_t at, bool freed) {
    return survives([&] {
      float* to = block_of(1);
      float* p = block_of(kFloats);
      if (freed) cudaFree(p);
      run(Add{{}, to, p + at});
    });
  };
  CHECK(writes(0));
  CHECK(writes(kFloats - 1));
  CHECK_FALSE(writes(kFloats));
  CHECK_FALSE(writes(-1));
  CHECK_FALSE(writes(kFloats + 4));
  CHECK(reads(kFloats - 1, false));
  CHECK_FALSE(reads(kFloats + 4, false));
  CHECK_FALSE(reads(0, true));
  // Too near to the end for a page of its own.
  float* to = block_of(1);
  float* p = block_of(kFloats);
  run(Fill{{}, to, 0});
  run(Add{{}, to, p + kFloats});
  CHECK(std::isnan(value_at(to)));
  CHECK(std::isnan(value_at(p)));
  for (float* block : {to, p}) CHECK(cudaFree(block) == cudaSuccess);
}

TEST_CASE("memory of the driver is not a number until it is written, also where it was used before",
          "[device]") {
  for (int turn = 0; turn < 2; ++turn) {
    float* p = block_of(1 << 18);
    CHECK(std::isnan(value_at(p)));
    CHECK(std::isnan(value_at(p + (1 << 17))));
    CHECK(about(Fill{{}, p, 1 << 17}, {1, 1, 0}) == "");
    CHECK(value_at(p + (1 << 17)) == 3);
    CHECK(cudaFree(p) == cudaSuccess);
  }
}
