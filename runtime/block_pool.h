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

 private:
  void* take_cached(std::int64_t class_bytes);
  void* reserve(std::int64_t class_bytes);
  void release_cached_locked();

  MemoryBackend backend_;
  std::mutex mutex_;
  std::map<std::int64_t, std::vector<void*>> cached_;  // by class, in ascending order
  std::unordered_map<void*, std::int64_t> class_of_;   // every block that the system gave us
  std::atomic<std::int64_t> reserved_{0};
  std::atomic<std::int64_t> system_allocations_{0};
};

}  // namespace tessera::detail
