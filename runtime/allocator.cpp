#include "runtime/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <mutex>

#include "runtime/block_pool.h"
#include "runtime/error.h"
#include "runtime/host_arena.h"

namespace tessera {
namespace {

using detail::kHugePage;
constexpr std::int64_t kSmallLimit = 65536;
constexpr int kSmallClasses = 40;  // 16 of 64 bytes each up to 1 KiB, then four per doubling

int small_class(std::int64_t bytes) {
  if (bytes <= 1024) return static_cast<int>((std::max<std::int64_t>(bytes, 1) - 1) / 64);
  const int k = std::bit_width(static_cast<std::uint64_t>(bytes - 1)) - 1;  // 2^k < bytes <= 2^(k+1), k >= 10
  const std::int64_t quarter = (bytes - 1 - (std::int64_t{1} << k)) >> (k - 2);
  return 16 + 4 * (k - 10) + static_cast<int>(quarter);
}

constexpr std::int64_t small_class_bytes(int c) {
  if (c < 16) return (c + 1) * 64;
  const int k = 10 + (c - 16) / 4;
  return (std::int64_t{1} << k) + ((c - 16) % 4 + 1) * (std::int64_t{1} << (k - 2));
}

// How many blocks of a class a thread keeps before it gives half of them back: about 128 KiB worth.
constexpr int thread_limit(int c) {
  return static_cast<int>(std::clamp<std::int64_t>(131072 / small_class_bytes(c), 4, 256));
}

struct FreeBlock {
  FreeBlock* next;
};
struct FreeList {
  FreeBlock* head = nullptr;
  int count = 0;

  void push(void* data) {
    auto* block = static_cast<FreeBlock*>(data);
    block->next = head;
    head = block;
    ++count;
  }
  void* pop() {
    FreeBlock* block = head;
    head = block->next;
    --count;
    return block;
  }
};

// Under the lock of the host's pool.
detail::HostArena& arena() {
  static auto* instance = new detail::HostArena;
  return *instance;
}
void* reserve_host(std::int64_t bytes) {
  if (detail::keeps_blocks() && bytes <= detail::HostArena::kLargestBlock) return arena().take(bytes);
  const std::size_t alignment = bytes >= kHugePage ? kHugePage : 64;
  void* data = nullptr;
  if (posix_memalign(&data, alignment, static_cast<std::size_t>(bytes)) != 0) return nullptr;
  // Whole huge pages only, so that the end of a block does not cost up to 2 MiB of real memory. Advice: where
  // the kernel has no huge pages the block is as good.
  const auto whole = static_cast<std::size_t>(bytes / kHugePage * kHugePage);
  if (whole > 0) madvise(data, whole, MADV_HUGEPAGE);
  return data;
}
void release_host(void* data, std::int64_t bytes) {
  if (bytes > detail::HostArena::kLargestBlock || !arena().give(data, bytes)) std::free(data);
}

// Counters are atomics of their own cache line: they are all that threads share on the fast path.
struct alignas(64) Counters {
  std::atomic<std::int64_t> live{0};
  std::atomic<std::int64_t> peak{0};
  std::atomic<std::int64_t> allocations{0};
  std::atomic<std::int64_t> frees{0};

  void add(std::int64_t bytes) {
    const std::int64_t now = live.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t seen = peak.load(std::memory_order_relaxed);
    while (now > seen && !peak.compare_exchange_weak(seen, now, std::memory_order_relaxed)) {
    }
    allocations.fetch_add(1, std::memory_order_relaxed);
  }
  void remove(std::int64_t bytes) {
    live.fetch_sub(bytes, std::memory_order_relaxed);
    frees.fetch_add(1, std::memory_order_relaxed);
  }
};

// Small blocks that threads have too many of, and the slab that new ones are carved from.
class SmallBlocks {
 public:
  // Moves up to `wanted` blocks of class c to `to`; at least one unless the system has no more.
  void fetch(int c, int wanted, detail::BlockPool& slabs, FreeList& to) {
    std::lock_guard lock(mutex_);
    FreeList& from = shared_[static_cast<std::size_t>(c)];
    while (wanted > 0 && from.head != nullptr) {
      to.push(from.pop());
      --wanted;
    }
    if (to.head == nullptr) carve(small_class_bytes(c), wanted, slabs, to);
  }
  void give_back(int c, int n, FreeList& from) {
    std::lock_guard lock(mutex_);
    for (; n > 0 && from.head != nullptr; --n) shared_[static_cast<std::size_t>(c)].push(from.pop());
  }

 private:
  void carve(std::int64_t bytes, int wanted, detail::BlockPool& slabs, FreeList& to) {
    if (slab_end_ - slab_ < bytes) {
      cut_up_rest();
      slab_ = static_cast<char*>(slabs.take(kHugePage));
      slab_end_ = slab_ == nullptr ? nullptr : slab_ + kHugePage;
    }
    // Few at a time: what one class takes another cannot have.
    const std::int64_t most = std::clamp<std::int64_t>(8192 / bytes, 1, wanted);
    for (std::int64_t i = 0; i < most && slab_end_ - slab_ >= bytes; ++i, slab_ += bytes) to.push(slab_);
  }
  // The end of a slab that is too short for this request still serves smaller ones.
  void cut_up_rest() {
    for (int c = kSmallClasses - 1; c >= 0; --c) {
      const std::int64_t bytes = small_class_bytes(c);
      for (; slab_end_ - slab_ >= bytes; slab_ += bytes) shared_[static_cast<std::size_t>(c)].push(slab_);
    }
  }

  std::mutex mutex_;
  std::array<FreeList, kSmallClasses> shared_{};
  char* slab_ = nullptr;
  char* slab_end_ = nullptr;
};

struct DeviceMemory {
  Counters counters;
  detail::BlockPool pool;
};

struct Memory {
  std::array<DeviceMemory, kDeviceCount> devices;
  SmallBlocks small;
  bool small_enabled = detail::keeps_blocks();

  Memory() { devices[0].pool.set_backend({&reserve_host, &release_host, true}); }
};

// Never destroyed: arrays in static variables give their memory back after main.
Memory& memory() {
  static auto* instance = new Memory;
  return *instance;
}
DeviceMemory& memory_of(Device device) { return memory().devices[static_cast<std::size_t>(device)]; }

struct ThreadCache {
  std::array<FreeList, kSmallClasses> lists{};

  void flush() {
    for (int c = 0; c < kSmallClasses; ++c) {
      FreeList& list = lists[static_cast<std::size_t>(c)];
      if (list.head != nullptr) memory().small.give_back(c, list.count, list);
    }
  }
};
// Plain data, so that it can be used until the very end of the thread; the guard gives it back before that,
// and blocks freed later still (by other thread-local objects) go straight to the shared lists.
thread_local ThreadCache cache;
thread_local bool cache_closed = false;
struct CacheGuard {
  bool armed = false;
  ~CacheGuard() {
    cache.flush();
    cache_closed = true;
  }
};
thread_local CacheGuard guard;

void* take_small(Memory& m, std::int64_t bytes) {
  const int c = small_class(bytes);
  FreeList& list = cache.lists[static_cast<std::size_t>(c)];
  if (list.head == nullptr) [[unlikely]] {
    if (!cache_closed) guard.armed = true;
    const int wanted = cache_closed ? 1 : std::max(1, thread_limit(c) / 2);
    m.small.fetch(c, wanted, m.devices[0].pool, list);
    if (list.head == nullptr) return nullptr;
  }
  return list.pop();
}

void give_small(Memory& m, void* data, std::int64_t bytes) {
  const int c = small_class(bytes);
  FreeList& list = cache.lists[static_cast<std::size_t>(c)];
  list.push(data);
  if (cache_closed) [[unlikely]] {
    m.small.give_back(c, list.count, list);
  } else if (list.count > thread_limit(c)) [[unlikely]] {
    guard.armed = true;
    m.small.give_back(c, list.count / 2, list);
  }
}

}  // namespace

void* allocate_bytes(Device device, std::int64_t bytes) {
  TS_CHECK(bytes >= 0, "allocate", "{} bytes were asked for, allowed are 0 and more", bytes);
  Memory& m = memory();
  DeviceMemory& d = m.devices[static_cast<std::size_t>(device)];
  if (device == Device::Meta) {
    d.counters.add(bytes);
    return nullptr;
  }
  if (d.pool.backend().reserve == nullptr)
    TS_FAIL(Unsupported, "allocate", "no memory backend for device {} in this build", name_of(device));
  const bool small = bytes <= kSmallLimit && device == Device::Cpu && m.small_enabled;
  void* data = small ? take_small(m, bytes) : d.pool.take(bytes);
  if (data == nullptr)
    TS_FAIL(Backend, "allocate",
            "out of memory on device {}: {} bytes were asked for, {} are live, {} reserved", name_of(device),
            bytes, d.counters.live.load(), d.pool.reserved_bytes());
  d.counters.add(bytes);
  return data;
}

void free_bytes(Device device, void* data, std::int64_t bytes) noexcept {
  Memory& m = memory();
  DeviceMemory& d = m.devices[static_cast<std::size_t>(device)];
  d.counters.remove(bytes);
  if (device == Device::Meta) return;
  if (bytes <= kSmallLimit && device == Device::Cpu && m.small_enabled) {
    give_small(m, data, bytes);
  } else {
    d.pool.give(data);
  }
}

AllocatorStats allocator_stats(Device device) {
  const DeviceMemory& d = memory_of(device);
  AllocatorStats s;
  s.live_bytes = d.counters.live;
  s.peak_live_bytes = d.counters.peak;
  s.reserved_bytes = d.pool.reserved_bytes();
  s.allocations = d.counters.allocations;
  s.live_blocks = s.allocations - d.counters.frees;
  s.system_allocations = d.pool.system_allocations();
  return s;
}

void reset_peak(Device device) {
  Counters& c = memory_of(device).counters;
  c.peak.store(c.live.load());
}

void empty_cache(Device device) {
  if (device == Device::Cpu) cache.flush();
  if (device != Device::Meta) memory_of(device).pool.release_cached();
}

int make_private_pool(Device device) { return memory_of(device).pool.make_private(); }
void begin_private_pool(Device device, int pool) { memory_of(device).pool.begin_private(pool); }
void end_private_pool(Device device) { memory_of(device).pool.end_private(); }
void release_private_pool(Device device, int pool) noexcept { memory_of(device).pool.release_private(pool); }

void set_memory_backend(Device device, MemoryBackend backend) {
  DeviceMemory& d = memory_of(device);
  TS_CHECK(d.pool.reserved_bytes() == 0, "set_memory_backend",
           "device {} has {} bytes in use or cached already", name_of(device), d.pool.reserved_bytes());
  d.pool.set_backend(backend);
}

}  // namespace tessera
