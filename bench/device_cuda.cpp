#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "bench/device.h"
#include "ops/cuda/cudnn_graphs.h"
#include "runtime/cuda/api.h"

namespace tessera::bench {
namespace {

cudaDeviceProp properties() {
  cudaDeviceProp p{};
  int device = 0;
  cuda::use_device();
  cuda::check(cudaGetDevice(&device), "cudaGetDevice");
  cuda::check(cudaGetDeviceProperties(&p, device), "cudaGetDeviceProperties");
  return p;
}

// An event that knows the time.
class Mark {
 public:
  Mark() { cuda::check(cudaEventCreateWithFlags(&event_, cudaEventDefault), "cudaEventCreateWithFlags"); }
  ~Mark() { cudaEventDestroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record() const { cuda::check(cudaEventRecord(event_, cuda::compute_stream()), "cudaEventRecord"); }
  double seconds_since(const Mark& before) const {
    cuda::check(cudaEventSynchronize(event_), "cudaEventSynchronize");
    float milliseconds = 0;
    cuda::check(cudaEventElapsedTime(&milliseconds, before.event_, event_), "cudaEventElapsedTime");
    return 1e-3 * static_cast<double>(milliseconds);
  }

 private:
  cudaEvent_t event_ = nullptr;
};

}  // namespace

std::string device_line() {
  const cudaDeviceProp p = properties();
  if (device_is_emulated())
    return "emulated device: times are those of stand-ins on this processor, and say nothing of a GPU";
  return fmt::format("{}, {} multiprocessors, {} GiB, CUDA {}, cuDNN {}", p.name, p.multiProcessorCount,
                     p.totalGlobalMem >> 30U, CUDART_VERSION, cuda::cudnn_version());
}

bool device_is_emulated() {
  static const bool emulated = std::string(properties().name) == "emulated device";
  return emulated;
}

std::int64_t device_waits() { return cuda::host_waits(); }

Spent spent_on_device(const std::function<void()>& f) {
  cuda::use_device();
  const Mark begin;
  const Mark end;
  begin.record();
  const Spent host = spent_in(f);
  end.record();
  return {end.seconds_since(begin), host.cpu};
}

}  // namespace tessera::bench
