// BlockPool: large blocks of one device, cached by size class. Part of the allocator.
#pragma once
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/allocator.h"

namespace tessera::detail {

// The smallest class that holds `bytes`: eight steps per doubling, at least 512 bytes.
std::int64_t large_class_bytes(std::int64_t bytes);

// Whether blocks are kept for later requests (TESSERA_ALLOCATOR=system: no).
bool keeps_blocks();

class BlockPool {
 public:
  void set_backend(MemoryBackend backend) { backend_ = backend; }
  const MemoryBackend& backend() const { return backend_; }

  // nullptr when the system has no more, even after all cached blocks went back to it.
  void* take(std::int64_t bytes);
  void give(void* data) noexcept;
  void release_cached();
  std::int64_t reserved_bytes() const { return reserved_.load(std::memory_order_relaxed); }
  std::int64_t system_allocations() const { return system_allocations_.load(std::memory_order_relaxed); }

  // Private pools (allocator.h).
  int make_private();
  void begin_private(int pool);
  void end_private();
  void release_private(int pool) noexcept;

 private:
  static constexpr int kEverybody = 0;
  using Cached = std::map<std::int64_t, std::vector<void*>>;  // by class, in ascending order
  struct Block {
    std::int64_t class_bytes = 0;
    int owner = kEverybody;
  };
  struct Private {
    Cached cached;
    std::vector<void*> parked;  // given back in a capture, and not its own
  };
  void* take_private(std::int64_t class_bytes);
  static void* take_cached(Cached& cached, std::int64_t class_bytes);
  void* reserve(std::int64_t class_bytes);
  void give_to_everybody(void* data, const Block& block) noexcept;
  void retire(void* data, const Block& block) const noexcept;
  void release_cached_locked();

  MemoryBackend backend_;
  std::mutex mutex_;
  Cached cached_;
  std::unordered_map<void*, Block> blocks_;  // all that the system gave us
  std::map<int, Private> private_;
  int capturing_ = kEverybody;  // the private pool that serves now
  int pools_made_ = 0;
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<std::int64_t> system_allocations_{0};
};

}  // namespace tessera::detail
