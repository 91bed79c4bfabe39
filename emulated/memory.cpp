#include "emulated/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>

#include "emulated/settings.h"

namespace tessera::emulated {
namespace {

// cudaMalloc promises 256. The library and cuDNN need this, and more would leave what lies between the end of
// a block and that of its page unseen until the block is given back.
constexpr std::size_t kAlignment = 16;
constexpr std::size_t kCounted = 512;  // what a block takes of the device's memory is a multiple
constexpr std::size_t kPage = 4096;

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
    map(kBase);
    map(kBase + kMirror);
    limit_ = settings().memory;
  }

  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (used_ + up(bytes, kCounted) > limit_) return nullptr;
    Block block{kBase, up(bytes == 0 ? 1 : bytes, kPage), bytes};
    for (const auto& [start, other] : blocks_) {
      if (other.page - block.page >= block.size + kPage) break;
      block.page = other.page + other.size + kPage;
    }
    if (block.page + block.size > kBase + kSize) return nullptr;
    const std::uintptr_t start = block.page + block.size - up(bytes == 0 ? 1 : bytes, kAlignment);
    blocks_[start] = block;
    used_ += up(bytes, kCounted);
    allow(block, PROT_READ | PROT_WRITE);
    // Whatever was never written is not a number.
    std::memset(mirror(block.page), 0xFF, block.size);
    return reinterpret_cast<void*>(start);
  }

  bool give(void* p) {
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(reinterpret_cast<std::uintptr_t>(p));
    if (found == blocks_.end()) return false;
    const auto& [start, block] = *found;
    check_ends(start, block);
    used_ -= up(block.bytes, kCounted);
    allow(block, PROT_NONE);
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(block.page - kBase),
              static_cast<off_t>(block.size));
    blocks_.erase(found);
    return true;
  }

  bool holds(const void* p, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto at = reinterpret_cast<std::uintptr_t>(p);
    auto block = blocks_.upper_bound(at);
    if (block == blocks_.begin()) return false;
    --block;
    return at + bytes <= block->first + block->second.bytes;
  }

  void check_ends() {
    const std::lock_guard lock(mutex_);
    for (const auto& [start, block] : blocks_) check_ends(start, block);
  }

  std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  std::size_t limit() const { return limit_; }

 private:
  struct Block {
    std::uintptr_t page = 0;  // the first
    std::size_t size = 0;     // of its pages
    std::size_t bytes = 0;
  };

  static unsigned char* mirror(std::uintptr_t at) { return reach(reinterpret_cast<unsigned char*>(at)); }
  void map(std::uintptr_t at) const {
    void* wanted = reinterpret_cast<void*>(at);
    if (mmap(wanted, kSize, PROT_NONE, MAP_SHARED | MAP_NORESERVE | MAP_FIXED_NOREPLACE, file_, 0) != wanted)
      give_up("emulated device: address space");
  }
  static void allow(const Block& block, int protection) {
    if (mprotect(mirror(block.page), block.size, protection) != 0) give_up("emulated device: pages");
  }
  static void check_ends(std::uintptr_t start, const Block& block) {
    const auto untouched = [](std::uintptr_t from, std::uintptr_t to) {
      return std::all_of(mirror(from), mirror(to), [](unsigned char c) { return c == 0xFF; });
    };
    if (untouched(block.page, start) && untouched(start + block.bytes, block.page + block.size)) return;
    std::fprintf(stderr, "emulated device: a block of %zu bytes was written outside of its ends\n",
                 block.bytes);
    std::abort();
  }

  std::mutex mutex_;
  int file_ = -1;
  std::map<std::uintptr_t, Block> blocks_;
  std::size_t used_ = 0;
  std::size_t limit_ = std::size_t{8} << 30;
};

// Never destroyed: arrays in static variables give their memory back after main.
Pages& pages() {
  static auto* instance = [] {
    auto* made = new Pages;
    std::atexit([] { pages().check_ends(); });
    return made;
  }();
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
  void* p = std::aligned_alloc(kPage, up(bytes == 0 ? 1 : bytes, kPage));
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

namespace {
// Bytes from p to the end of its block; none where it is in no block.
std::size_t pinned_from(const void* p) {
  const std::lock_guard lock(pinned().mutex);
  const auto at = reinterpret_cast<std::uintptr_t>(p);
  auto block = pinned().blocks.upper_bound(at);
  if (block == pinned().blocks.begin()) return 0;
  --block;
  const std::uintptr_t end = block->first + block->second;
  return at < end ? end - at : 0;
}
}  // namespace

bool is_pinned(const void* p) { return pinned_from(p) > 0; }

bool is_within_block(const void* p, std::size_t bytes) {
  return is_device_address(p) ? pages().holds(p, bytes) : bytes <= pinned_from(p);
}

}  // namespace tessera::emulated
