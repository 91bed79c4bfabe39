// Page-locked host memory for copies between host and device. Buffers are kept and handed out again when the
// copy that used them is over, so a steady state takes none from the system.
#pragma once
#include <cstdint>
#include <memory>

#include "runtime/cuda/api.h"

namespace tessera::cuda {

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
