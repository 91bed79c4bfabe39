#include "runtime/cuda/staging.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "runtime/error.h"
#include "runtime/graph_capture.h"
#include "runtime/log.h"
#include "runtime/progress.h"

namespace tessera::cuda {
namespace {

struct Free {
  void* data = nullptr;
  Event busy;
};

class Pool {
 public:
  std::mutex mutex;
  std::map<std::int64_t, std::vector<Free>> free;  // by capacity, oldest first
  StagingStats taken;
};

Pool& pool() {
  static auto* instance = new Pool;
  return *instance;
}

constexpr std::int64_t kSmallest = 4096;

std::int64_t capacity_for(std::int64_t bytes) {
  return static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(bytes < kSmallest ? kSmallest : bytes)));
}

void give(std::int64_t capacity, Free buffer) {
  const std::lock_guard lock(pool().mutex);
  pool().free[capacity].push_back(std::move(buffer));
}

// Whether this thread must not wait for a buffer.
bool takes_new_ones() { return in_message_step() || GraphCapture::current() != nullptr; }

// One that is over; where as many wait as may, the oldest of them; else none.
Free take(std::int64_t capacity) {
  const std::lock_guard lock(pool().mutex);
  std::vector<Free>& list = pool().free[capacity];
  auto found = std::find_if(list.begin(), list.end(), [](const Free& f) { return f.busy.done(); });
  if (found == list.end()) {
    if (std::ssize(list) < most_staging_buffers(capacity) || takes_new_ones()) return {};
    found = list.begin();
  }
  Free buffer = std::move(*found);
  list.erase(found);
  return buffer;
}

// Back in the pool if the device is gone.
void wait_for(Free& buffer, std::int64_t capacity) {
  try {
    buffer.busy.wait();
  } catch (...) {
    give(capacity, std::move(buffer));
    throw;
  }
}

void* from_driver(std::int64_t capacity) {
  use_device();
  void* data = nullptr;
  check(cudaHostAlloc(&data, static_cast<std::size_t>(capacity), cudaHostAllocDefault), "cudaHostAlloc");
  const std::lock_guard lock(pool().mutex);
  ++pool().taken.buffers;
  pool().taken.bytes += capacity;
  return data;
}

}  // namespace

std::int64_t most_staging_buffers(std::int64_t bytes) {
  const std::int64_t capacity = capacity_for(bytes);
  constexpr std::int64_t kLarge = std::int64_t{256} << 20;  // in all buffers of a size
  constexpr std::int64_t kSmall = 64 * kSmallest;
  return std::max<std::int64_t>({2, std::min<std::int64_t>(16, kLarge / capacity), kSmall / capacity});
}

StagingStats staging_stats() {
  const std::lock_guard lock(pool().mutex);
  return pool().taken;
}

StagingBuffer::StagingBuffer(std::int64_t bytes) : capacity_(capacity_for(bytes)) {
  Free buffer = take(capacity_);
  if (buffer.data == nullptr) {
    data_ = from_driver(capacity_);
    return;
  }
  if (!buffer.busy.done()) wait_for(buffer, capacity_);
  data_ = buffer.data;
}

StagingBuffer::~StagingBuffer() { give(capacity_, {data_, std::move(busy_)}); }

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
