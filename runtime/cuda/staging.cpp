#include "runtime/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/error.h"
#include "runtime/graph_capture.h"
#include "runtime/log.h"

namespace tessera::cuda {
namespace {

struct Free {
  void* data;
  Event busy;
};

class Pool {
 public:
  std::mutex mutex;
  std::map<std::int64_t, std::vector<Free>> free;  // by capacity, oldest first
};

Pool& pool() {
  static auto* instance = new Pool;
  return *instance;
}

std::int64_t capacity_for(std::int64_t bytes) {
  return static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(bytes < 4096 ? 4096 : bytes)));
}

}  // namespace

StagingBuffer::StagingBuffer(std::int64_t bytes) : capacity_(capacity_for(bytes)) {
  {
    const std::lock_guard lock(pool().mutex);
    auto& list = pool().free[capacity_];
    for (auto f = list.begin(); f != list.end(); ++f) {
      if (!f->busy.done()) continue;
      data_ = f->data;
      list.erase(f);
      return;
    }
  }
  use_device();
  check(cudaHostAlloc(&data_, static_cast<std::size_t>(capacity_), cudaHostAllocDefault), "cudaHostAlloc");
}

StagingBuffer::~StagingBuffer() {
  const std::lock_guard lock(pool().mutex);
  pool().free[capacity_].push_back({data_, std::move(busy_)});
}

void StagingBuffer::retire(StagingBuffer* buffer) noexcept {
  // An event of another capture could not be asked.
  if (GraphCapture* capture = GraphCapture::current())
    return capture->keep(std::shared_ptr<StagingBuffer>(buffer, &retire));
  try {
    buffer->in_use_until_now(compute_stream());
    delete buffer;
  } catch (const Error& e) {  // the device is gone
    log_error("{}", e.what());
  }
}

void copy_to_device(void* to, const void* from, std::int64_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  auto buffer = std::make_unique<StagingBuffer>(bytes);
  std::memcpy(buffer->data(), from, static_cast<std::size_t>(bytes));
  check(cudaMemcpyAsync(to, buffer->data(), static_cast<std::size_t>(bytes), cudaMemcpyHostToDevice, stream),
        "cudaMemcpyAsync");
  if (GraphCapture* capture = GraphCapture::current())
    return capture->keep(std::shared_ptr<StagingBuffer>(buffer.release(), &StagingBuffer::retire));
  buffer->in_use_until_now(stream);
}

void copy_to_host(void* to, const void* from, std::int64_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  refuse_wait_in_capture("copy");
  StagingBuffer buffer(bytes);
  check(cudaMemcpyAsync(buffer.data(), from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        "cudaMemcpyAsync");
  buffer.in_use_until_now(stream);  // an error may end the wait
  synchronize(stream);
  std::memcpy(to, buffer.data(), static_cast<std::size_t>(bytes));
}

void copy_on_device(void* to, const void* from, std::int64_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(to, from, static_cast<std::size_t>(bytes), cudaMemcpyDeviceToDevice, stream),
        "cudaMemcpyAsync");
}

}  // namespace tessera::cuda
