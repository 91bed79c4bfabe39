// HostArena: blocks of host memory that lie side by side in huge pages. Part of the allocator.
//
// A block of its own from the system has huge pages for the whole 2 MiB that it fills, and its rest, or all
// of a smaller one, lies in pages of 4 KiB: of a transformer's activations that is most. Here such blocks
// share regions of whole huge pages, cut up first fit; what a block leaves of its last one serves others.
#pragma once
#include <cstdint>
#include <list>
#include <map>

namespace tessera::detail {

inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

// Whole huge pages, on huge pages where the kernel has any; null when the system has no more.
void* map_huge_pages(std::int64_t bytes);
void unmap_huge_pages(void* data, std::int64_t bytes);

// Not for several threads at once.
class HostArena {
 public:
  static constexpr std::int64_t kLargestBlock = std::int64_t{16} << 20;
  static constexpr std::int64_t kRegion = std::int64_t{64} << 20;

  HostArena() = default;
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;
  ~HostArena();

  // A block of at most kLargestBlock, at a multiple of 64 bytes, from 2 MiB on of 2 MiB; null when the system
  // has no more.
  void* take(std::int64_t bytes);
  // What take() gave, with the same `bytes`; false if it is not from here. A region goes back to the system
  // with its last block, the whole pages of others at once.
  bool give(void* data, std::int64_t bytes);

 private:
  struct Region {
    char* memory;
    std::map<std::int64_t, std::int64_t> holes;  // length by offset, none beside each other
    std::int64_t used = 0;
  };
  static char* cut(Region& region, std::int64_t bytes, std::int64_t alignment);
  static void join(Region& region, std::int64_t offset, std::int64_t bytes);

  std::list<Region> regions_;
};

}  // namespace tessera::detail
