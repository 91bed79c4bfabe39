// The device's memory and the runtime's kernels, registered when the library starts. CMake makes every
// program refer to `tessera_cuda_runtime`, so that a static library is not linked without this file.
#include <cuda_runtime_api.h>

#include "runtime/allocator.h"
#include "runtime/cuda/api.h"
#include "runtime/cuda/host_watch.h"
#include "runtime/cuda/register.h"
#include "runtime/cuda/staging.h"
#include "runtime/device.h"
#include "runtime/graph_capture.h"
#include "tessera_cuda_port.h"

namespace tessera::cuda {
namespace {

void* reserve(std::int64_t bytes) {
  use_device();
  void* data = nullptr;
  const cudaError_t code = cudaMalloc(&data, static_cast<std::size_t>(bytes));
  if (code == cudaErrorMemoryAllocation) {
    ignore(code);
    return nullptr;
  }
  check(code, "cudaMalloc");
  return data;
}
void release(void* data, std::int64_t) { ignore(cudaFree(data)); }

// Whatever reads it from here on, in the order of the stream, reads what nobody owns.
void retired(void* data, std::int64_t bytes) { poison(data, bytes, compute_stream()); }

int count(std::string& why) {
  int n = 0;
  const cudaError_t code = cudaGetDeviceCount(&n);
  if (code == cudaSuccess) return n;
  ignore(code);
  why = cudaGetErrorString(code);
  return 0;
}
void copy(void* to, const void* from, std::int64_t bytes) {
  copy_on_device(to, from, bytes, current_stream());
}

class PinnedStaging final : public Staging {
 public:
  explicit PinnedStaging(std::int64_t bytes) : buffer_(bytes), bytes_(static_cast<std::size_t>(bytes)) {}
  char* data() const override { return static_cast<char*>(buffer_.data()); }
  void fetch(const void* from) override {
    refuse_in_capture("copy", "what the device works out would have to go to the host",
                      "allowed is work that stays on the device");
    check(cudaMemcpyAsync(data(), from, bytes_, cudaMemcpyDeviceToHost, current_stream()), "cudaMemcpyAsync");
    buffer_.in_use_until_now(current_stream());
  }
  bool ready() const override { return !buffer_.in_use(); }
  void deliver(void* to) override {
    check(cudaMemcpyAsync(to, data(), bytes_, cudaMemcpyHostToDevice, current_stream()), "cudaMemcpyAsync");
    buffer_.in_use_until_now(current_stream());
  }

 private:
  StagingBuffer buffer_;
  std::size_t bytes_;
};
std::unique_ptr<Staging> stage(std::int64_t bytes) { return std::make_unique<PinnedStaging>(bytes); }

class StreamPoint final : public DevicePoint {
 public:
  StreamPoint() { event_.record(current_stream()); }
  bool reached() const override { return event_.done(); }

 private:
  Event event_;
};
std::unique_ptr<DevicePoint> mark() { return std::make_unique<StreamPoint>(); }

const bool registered = [] {
  set_device_backend(Device::Cuda, {&count, &choose_device, &synchronize_all, &copy, &stage, &mark});
  set_memory_backend(Device::Cuda, {&reserve, &release, false, kPoisons ? &retired : nullptr});
  register_copies();
  register_graphs();
  register_random();
  return true;
}();

}  // namespace
}  // namespace tessera::cuda

extern "C" bool tessera_cuda_runtime() { return tessera::cuda::registered; }
