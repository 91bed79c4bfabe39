// Page-locked host memory for copies between host and device. Buffers are kept and handed out again when the
// copy that used them is over. Of each size (powers of two) only so many wait for that at a time: a host that
// runs further ahead of the device waits for the oldest of them (counted by host_waits), so a steady state
// takes no memory from the driver. In a capture nobody waits: the graph keeps its buffers. Nor does a step of
// a message (runtime/progress.h): there are not many more buffers than messages under way.
#pragma once
#include <cstdint>
#include <memory>

#include "runtime/cuda/api.h"

namespace tessera::cuda {

// How many buffers of the size that `bytes` needs wait for the device at most: 64 of the smallest (4 KiB),
// 16 of 16 KiB to 16 MiB, fewer of larger ones, 2 at least.
std::int64_t most_staging_buffers(std::int64_t bytes);

// What the driver has given this process, for tests and reports. It never goes back.
struct StagingStats {
  std::int64_t buffers = 0;
  std::int64_t bytes = 0;
};
StagingStats staging_stats();

class StagingBuffer {
 public:
  explicit StagingBuffer(std::int64_t bytes);
  // Back to the pool; reused after what `in_use_until` recorded.
  ~StagingBuffer();
  StagingBuffer(const StagingBuffer&) = delete;
  StagingBuffer& operator=(const StagingBuffer&) = delete;

  void* data() const { return data_; }
  // The device reads or writes it until this point of the stream.
  void in_use_until_now(StreamHandle stream) { busy_.record(stream); }
  bool in_use() const { return !busy_.done(); }
  // Of a graph that goes: replays under way may still use it.
  static void retire(StagingBuffer* buffer) noexcept;

 private:
  void* data_ = nullptr;
  std::int64_t capacity_ = 0;
  Event busy_;
};

// Asynchronous: `from` is read before the call returns; in a capture every replay copies what it held then.
void copy_to_device(void* to, const void* from, std::int64_t bytes, StreamHandle stream);
// Waits for the stream; refused in a capture.
void copy_to_host(void* to, const void* from, std::int64_t bytes, StreamHandle stream);
void copy_on_device(void* to, const void* from, std::int64_t bytes, StreamHandle stream);

}  // namespace tessera::cuda
