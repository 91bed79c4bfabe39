// The CUDA runtime's functions that the library calls, answered by the emulated device.
#include <cuda_runtime_api.h>

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include "emulated/blocks.h"
#include "emulated/capture.h"
#include "emulated/memory.h"
#include "emulated/settings.h"
#include "emulated/streams.h"

namespace emu = tessera::emulated;

namespace {

template <class T>
T* in_use(T* p) {
  emu::check_in_use(p);
  return p;
}
emu::Stream* of(cudaStream_t stream) { return in_use(reinterpret_cast<emu::Stream*>(stream)); }
emu::Event* of(cudaEvent_t event) { return in_use(reinterpret_cast<emu::Event*>(event)); }
emu::Graph* of(cudaGraph_t graph) { return in_use(reinterpret_cast<emu::Graph*>(graph)); }
emu::Graph* of(cudaGraphExec_t graph) { return in_use(reinterpret_cast<emu::Graph*>(graph)); }

const int devices_of_host = static_cast<int>(emu::settings().devices);
int device_count() { return devices_of_host > 0 ? devices_of_host : 1; }
bool is_device(int device) { return device >= 0 && device < device_count(); }

thread_local cudaError_t last_error = cudaSuccess;
cudaError_t answer(cudaError_t code) {
  if (code != cudaSuccess) last_error = code;
  return code;
}

bool moves_late(const void* p) { return emu::is_device_address(p) || emu::is_pinned(p); }

// Copies go where they say, and stay within the blocks that they begin in.
cudaError_t refuse_range(const void* p, std::size_t bytes) {
  if (p == nullptr && bytes > 0) return cudaErrorInvalidValue;
  return moves_late(p) && !emu::is_within_block(p, bytes) ? cudaErrorInvalidValue : cudaSuccess;
}
cudaError_t refuse_copy(const void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
  const bool from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault &&
      (emu::is_device_address(to) != to_device || emu::is_device_address(from) != from_device))
    return cudaErrorInvalidMemcpyDirection;
  const cudaError_t code = refuse_range(to, bytes);
  return code == cudaSuccess ? refuse_range(from, bytes) : code;
}

}  // namespace

bool emu::takes_launch(const BlockShape& shape, int bound) {
  constexpr std::int64_t kMostBlocks = (std::int64_t{1} << 31) - 1;
  constexpr int kMostThreads = 1024;
  constexpr int kMostShared = 48 << 10;  // of a kernel that does not ask for more
  const auto refused = [](cudaError_t code) { return answer(code) == cudaSuccess; };
  if (shape.blocks < 1 || shape.blocks > kMostBlocks || shape.threads < 1 || shape.threads > kMostThreads)
    return refused(cudaErrorInvalidConfiguration);
  if (shape.threads > bound) return refused(cudaErrorLaunchOutOfResources);
  if (shape.shared_bytes < 0 || shape.shared_bytes > kMostShared) return refused(cudaErrorInvalidValue);
  return true;
}

// TESSERA_EMULATED_DEVICES: how many a host has, which all its processes see. Unset: one that is this
// process's own, as if each were alone on its host.
cudaError_t cudaGetDeviceCount(int* count) {
  *count = device_count();
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = emu::current_device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  emu::current_device() = device;
  emu::touch_current_device();
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  return cudaSuccess;
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int length, int device) {
  if (!is_device(device)) return answer(cudaErrorInvalidDevice);
  constexpr int kLeast = 13;
  if (length < kLeast) return answer(cudaErrorInvalidValue);
  const int bus = devices_of_host > 0 ? 0 : static_cast<int>(getpid());
  std::snprintf(id, static_cast<std::size_t>(length), "%08X:%02X:00.0", bus, device);
  return cudaSuccess;
}
cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() { return last_error; }
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorLaunchOutOfResources:
      return "too many resources requested for launch";
    case cudaErrorInvalidMemcpyDirection:
      return "invalid copy direction for memcpy";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    case cudaErrorStreamCaptureUnjoined:
      return "capturing stream has unjoined work";
    case cudaErrorStreamCaptureIsolation:
      return "dependency created on uncaptured work in another stream";
    case cudaErrorCapturedEvent:
      return "operation not permitted on an event last recorded in a capturing stream";
    default:
      return "error of the emulated device";
  }
}

cudaError_t cudaDeviceSynchronize() {
  emu::touch_current_device();
  if (const cudaError_t code = emu::refuse_wait(nullptr); code != cudaSuccess) return answer(code);
  ++emu::counters().host_waits;
  emu::run_until_idle(nullptr);
  return cudaSuccess;
}
cudaError_t cudaMemGetInfo(std::size_t* free, std::size_t* total) {
  *total = emu::memory_limit();
  *free = *total - emu::memory_in_use();
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** p, std::size_t bytes) {
  emu::touch_current_device();
  ++emu::counters().allocations;
  *p = emu::take_memory(bytes);
  return answer(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
// Waits for the device, as the real one does.
cudaError_t cudaFree(void* p) {
  if (p == nullptr) return cudaSuccess;
  ++emu::counters().host_waits;
  emu::run_until_idle(nullptr);
  return answer(emu::give_memory(p) ? cudaSuccess : cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** p, std::size_t bytes, unsigned) {
  emu::touch_current_device();
  ++emu::counters().pinned_allocations;
  *p = emu::take_pinned(bytes);
  return answer(*p == nullptr ? cudaErrorMemoryAllocation : cudaSuccess);
}
cudaError_t cudaFreeHost(void* p) {
  if (p == nullptr) return cudaSuccess;
  ++emu::counters().host_waits;
  emu::run_until_idle(nullptr);
  return answer(emu::give_pinned(p) ? cudaSuccess : cudaErrorInvalidValue);
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
  ++emu::counters().copies;
  if (emu::is_instant()) {
    std::memcpy(emu::reach(to), emu::reach(from), bytes);
    return cudaSuccess;
  }
  if (const cudaError_t code = refuse_copy(to, from, bytes, kind); code != cudaSuccess) return answer(code);
  if (!moves_late(from) || !moves_late(to)) {
    ++emu::counters().pageable_copies;
    if (const cudaError_t code = emu::refuse_unstaged_copy(of(stream)); code != cudaSuccess)
      return answer(code);
  }
  if (!moves_late(from)) {  // staged by the driver before the call returns
    emu::enqueue(of(stream), [to, data = std::string(static_cast<const char*>(from), bytes)] {
      std::memcpy(emu::reach(to), data.data(), data.size());
      return true;
    });
    return cudaSuccess;
  }
  emu::enqueue(of(stream), [to, from, bytes] {
    std::memcpy(emu::reach(to), emu::reach(from), bytes);
    return true;
  });
  if (!moves_late(to)) {
    ++emu::counters().host_waits;
    emu::run_until_idle(of(stream));
  }
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* p, int value, std::size_t bytes, cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidResourceHandle);
  if (emu::is_instant()) {
    std::memset(emu::reach(p), value, bytes);
    return cudaSuccess;
  }
  if (!moves_late(p)) return answer(cudaErrorInvalidValue);
  if (const cudaError_t code = refuse_range(p, bytes); code != cudaSuccess) return answer(code);
  emu::enqueue(of(stream), [=] {
    std::memset(emu::reach(p), value, bytes);
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  emu::touch_current_device();
  *stream = reinterpret_cast<cudaStream_t>(emu::make_stream());
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  emu::drop_stream(of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t code = emu::refuse_wait(of(stream)); code != cudaSuccess) return answer(code);
  ++emu::counters().host_waits;
  emu::run_until_idle(of(stream));
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  if (const cudaError_t code = emu::refuse_wait(of(stream)); code != cudaSuccess) return answer(code);
  return emu::is_idle(of(stream)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  return answer(emu::wait_for(of(stream), of(event)));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  emu::touch_current_device();
  *event = reinterpret_cast<cudaEvent_t>(emu::make_event((flags & cudaEventDisableTiming) == 0));
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  emu::drop_event(of(event));
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  return answer(emu::record(of(event), of(stream)));
}
cudaError_t cudaEventQuery(cudaEvent_t event) {
  if (const cudaError_t code = emu::refuse_captured(of(event)); code != cudaSuccess) return answer(code);
  return emu::is_done(of(event)) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t code = emu::refuse_captured(of(event)); code != cudaSuccess) return answer(code);
  ++emu::counters().host_waits;
  emu::run_until_done(of(event));
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  double seconds = 0;
  const cudaError_t code = emu::seconds_between(of(from), of(to), seconds);
  *milliseconds = static_cast<float>(1e3 * seconds);
  return answer(code);
}

// Only the relaxed mode: others also refuse what a program does elsewhere, which nobody here looks at.
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (mode != cudaStreamCaptureModeRelaxed || stream == nullptr) return answer(cudaErrorInvalidValue);
  return answer(emu::begin_capture(of(stream)));
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  emu::Graph* captured = nullptr;
  const cudaError_t code = emu::end_capture(of(stream), &captured);
  *graph = reinterpret_cast<cudaGraph_t>(captured);
  return answer(code);
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  *executable = reinterpret_cast<cudaGraphExec_t>(emu::copy_graph(of(graph)));
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  emu::drop_graph(of(graph));
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  emu::drop_graph(of(executable));
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (stream == nullptr) return answer(cudaErrorInvalidValue);
  if (const cudaError_t code = emu::refuse_unstaged_copy(of(stream)); code != cudaSuccess)
    return answer(code);
  emu::launch_graph(of(executable), of(stream));
  return cudaSuccess;
}
