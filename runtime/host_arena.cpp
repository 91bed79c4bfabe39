#include "runtime/host_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <iterator>

namespace tessera::detail {

namespace {

constexpr std::int64_t kAlign = 64;
constexpr std::int64_t kPage = 4096;

std::int64_t round_up(std::int64_t n, std::int64_t to) { return (n + to - 1) / to * to; }

}  // namespace

void* map_huge_pages(std::int64_t bytes) {
  // The system gives multiples of its pages: what lies before and behind the multiple of huge ones goes back.
  const auto size = static_cast<std::size_t>(bytes);
  const auto huge = static_cast<std::uintptr_t>(kHugePage);
  void* mapped =
      mmap(nullptr, size + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapped == MAP_FAILED) return nullptr;
  const auto at = reinterpret_cast<std::uintptr_t>(mapped);
  const std::uintptr_t before = (huge - at % huge) % huge;
  char* data = static_cast<char*>(mapped) + before;
  if (before > 0) munmap(mapped, before);
  if (before < huge) munmap(data + size, huge - before);
  madvise(data, size, MADV_HUGEPAGE);  // advice: where the kernel has no huge pages the block is as good
  return data;
}

void unmap_huge_pages(void* data, std::int64_t bytes) { munmap(data, static_cast<std::size_t>(bytes)); }

HostArena::~HostArena() {
  for (const Region& region : regions_) unmap_huge_pages(region.memory, kRegion);
}

void* HostArena::take(std::int64_t bytes) {
  const std::int64_t size = round_up(bytes, kAlign);
  const std::int64_t alignment = bytes >= kHugePage ? kHugePage : kAlign;
  for (Region& region : regions_)
    if (char* block = cut(region, size, alignment)) return block;
  auto* memory = static_cast<char*>(map_huge_pages(kRegion));
  if (memory == nullptr) return nullptr;
  regions_.push_back({memory, {{0, kRegion}}, 0});
  return cut(regions_.back(), size, alignment);
}

char* HostArena::cut(Region& region, std::int64_t bytes, std::int64_t alignment) {
  for (auto hole = region.holes.begin(); hole != region.holes.end(); ++hole) {
    const auto [offset, length] = *hole;
    const std::int64_t at = round_up(offset, alignment);
    const std::int64_t rest = offset + length - at - bytes;
    if (rest < 0) continue;
    if (rest > 0) region.holes.emplace_hint(std::next(hole), at + bytes, rest);
    if (at > offset)
      hole->second = at - offset;
    else
      region.holes.erase(hole);
    region.used += bytes;
    return region.memory + at;
  }
  return nullptr;
}

bool HostArena::give(void* data, std::int64_t bytes) {
  auto* block = static_cast<char*>(data);
  const auto region = std::find_if(regions_.begin(), regions_.end(), [&](const Region& r) {
    return block >= r.memory && block < r.memory + kRegion;
  });
  if (region == regions_.end()) return false;
  const std::int64_t size = round_up(bytes, kAlign);
  region->used -= size;
  if (region->used == 0) {
    unmap_huge_pages(region->memory, kRegion);
    regions_.erase(region);
    return true;
  }
  const std::int64_t offset = block - region->memory;
  const std::int64_t first = round_up(offset, kPage);
  const std::int64_t last = (offset + size) / kPage * kPage;
  if (last > first) madvise(region->memory + first, static_cast<std::size_t>(last - first), MADV_DONTNEED);
  join(*region, offset, size);
  return true;
}

void HostArena::join(Region& region, std::int64_t offset, std::int64_t bytes) {
  auto next = region.holes.lower_bound(offset);
  if (next != region.holes.begin()) {
    const auto previous = std::prev(next);
    if (previous->first + previous->second == offset) {
      offset = previous->first;
      bytes += previous->second;
      region.holes.erase(previous);
    }
  }
  if (next != region.holes.end() && offset + bytes == next->first) {
    bytes += next->second;
    next = region.holes.erase(next);
  }
  region.holes.emplace_hint(next, offset, bytes);
}

}  // namespace tessera::detail
