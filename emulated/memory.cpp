#include "emulated/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "emulated/settings.h"

namespace tessera::emulated {
namespace {

constexpr std::size_t kAlignment = 512;
// Between blocks: what writes past the end of one does not meet the next.
constexpr std::size_t kGap = 4096;

std::size_t up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }

[[noreturn]] void give_up(const char* what) {
  std::perror(what);
  std::abort();
}

class Pages {
 public:
  Pages() {
    file_ = memfd_create("emulated-device", MFD_CLOEXEC);
    if (file_ < 0 || ftruncate(file_, static_cast<off_t>(kSize)) != 0) give_up("emulated device: memory");
    map(kBase, PROT_NONE);
    map(kBase + kMirror, PROT_READ | PROT_WRITE);
    limit_ = settings().memory;
  }

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const std::size_t size = up(bytes == 0 ? 1 : bytes, kAlignment);
    if (used_ + size > limit_) return nullptr;
    std::uintptr_t at = kBase;
    for (const auto& [start, length] : blocks_) {
      if (start - at >= size + kGap) break;
      at = up(start + length + kGap, kGap);
    }
    if (at + size > kBase + kSize) return nullptr;
    blocks_[at] = size;
    used_ += size;
    // Whatever was never written is not a number.
    std::memset(reach(reinterpret_cast<void*>(at)), 0xFF, size);
    return reinterpret_cast<void*>(at);
  }

  bool give(void* p) {
    const std::lock_guard lock(mutex_);
    const auto block = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    if (block == blocks_.end()) return false;
    used_ -= block->second;
    const std::uintptr_t first = up(block->first - kBase, kGap);
    const std::uintptr_t last = (block->first - kBase + block->second) / kGap * kGap;
    std::memset(reach(p), 0xFF, block->second);
    if (last > first)
      fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(first),
                static_cast<off_t>(last - first));
    blocks_.erase(block);
    return true;
  }

  std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  std::size_t limit() const { return limit_; }

 private:
  void map(std::uintptr_t at, int protection) {
    void* wanted = reinterpret_cast<void*>(at);
    if (mmap(wanted, kSize, protection, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file_, 0) != wanted)
      give_up("emulated device: address space");
  }

  std::mutex mutex_;
  int file_ = -1;
  std::map<std::uintptr_t, std::size_t> blocks_;
  std::size_t used_ = 0;
  std::size_t limit_ = std::size_t{8} << 30;
};

// Never destroyed: arrays in static variables give their memory back after main.
Pages& pages() {
  static auto* instance = new Pages;
  return *instance;
}

struct Pinned {
  std::mutex mutex;
  std::map<std::uintptr_t, std::size_t> blocks;
};
Pinned& pinned() {
  static auto* instance = new Pinned;
  return *instance;
}

}  // namespace

void* take_memory(std::size_t bytes) { return pages().take(bytes); }
bool give_memory(void* p) { return pages().give(p); }
std::size_t memory_in_use() { return pages().used(); }
std::size_t memory_limit() { return pages().limit(); }

void* take_pinned(std::size_t bytes) {
  void* p = std::aligned_alloc(kGap, up(bytes == 0 ? 1 : bytes, kGap));
  if (p == nullptr) return nullptr;
  const std::lock_guard lock(pinned().mutex);
  pinned().blocks[reinterpret_cast<std::uintptr_t>(p)] = bytes;
  return p;
}

bool give_pinned(void* p) {
  {
    const std::lock_guard lock(pinned().mutex);
    if (pinned().blocks.erase(reinterpret_cast<std::uintptr_t>(p)) == 0) return false;
  }
  std::free(p);
  return true;
}

bool is_pinned(const void* p) {
  const std::lock_guard lock(pinned().mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto block = pinned().blocks.upper_bound(at);
  if (block == pinned().blocks.begin()) return false;
  --block;
  return at < block->first + block->second;
}

}  // namespace tessera::emulated
