// The caching allocator: every array's memory comes from here and goes back here, not to the system.
//
// A training step asks for the same sizes again and again. Freed blocks are kept by size class and handed out
// again, so after the first steps nothing is taken from the system (`system_allocations` stands still), pages
// stay mapped and no step pays for page faults.
//   * up to 64 KiB (host memory): carved out of 2 MiB slabs, kept in free lists of each thread, so that a
//   small
//     tensor costs tens of nanoseconds and no lock; threads trade surplus blocks through a shared list;
//   * above: eight size classes per doubling. A request takes a cached block of its own class, else the
//     smallest one up to 1.5 times larger (its pages are there already), else a new one: host memory of up to
//     16 MiB side by side with others in huge pages (runtime/host_arena.h), all else of the system, each for
//     itself.
// Host memory is aligned to 64 bytes, from 2 MiB on to 2 MiB, and the kernel is asked for huge pages.
// The meta device hands out nullptr and counts. Other devices plug in with `set_memory_backend`.
//
// TESSERA_ALLOCATOR=system turns the cache off, for memory checkers that want to see every block come and go.
#pragma once
#include <cstdint>

#include "runtime/array.h"

namespace tessera {

struct AllocatorStats {
  std::int64_t live_bytes = 0;       // asked for and not yet given back (as asked, not rounded up)
  std::int64_t peak_live_bytes = 0;  // largest live_bytes since the start or reset_peak
  std::int64_t reserved_bytes = 0;   // taken from the system, live or cached
  std::int64_t live_blocks = 0;
  std::int64_t allocations = 0;         // since the start
  std::int64_t system_allocations = 0;  // calls to the system's allocator since the start
};

// Of all threads of this process.
AllocatorStats allocator_stats(Device device);
// The peak counts from what is live now.
void reset_peak(Device device);
// Gives cached blocks back to the system. Slabs of small blocks and private pools stay.
void empty_cache(Device device);

// `bytes` may be 0. Refuses (kind Backend) with the bytes asked for and live when the device has no more.
void* allocate_bytes(Device device, std::int64_t bytes);
// With the same `bytes` as asked for.
void free_bytes(Device device, void* data, std::int64_t bytes) noexcept;

// Pools of their own, for graphs that are captured (runtime/graph.h): what is taken between begin and end
// belongs to the pool, is given out again there only, and goes back to the others when the pool is released.
// Cached blocks serve first, so that a capture seldom asks the system. Blocks of others that are given back
// between begin and end may be what the graph reads: nobody gets them before the pool is released.
int make_private_pool(Device device);
void begin_private_pool(Device device, int pool);
void end_private_pool(Device device);
void release_private_pool(Device device, int pool) noexcept;

// Where a device's memory comes from. `reserve` answers nullptr when there is none left.
struct MemoryBackend {
  void* (*reserve)(std::int64_t bytes) = nullptr;
  void (*release)(void* data, std::int64_t bytes) = nullptr;
  bool host = false;  // the CPU may write into it: small blocks keep their free lists inside
  // Optional: a block goes back to the cache, and nobody has it yet. Never throws, takes and gives no memory.
  void (*retired)(void* data, std::int64_t bytes) = nullptr;
};
// For backends, when the library starts; refuses once the device has live or cached blocks.
void set_memory_backend(Device device, MemoryBackend backend);

}  // namespace tessera
