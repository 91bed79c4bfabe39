#include "runtime/block_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

namespace tessera::detail {
namespace {

bool cache_enabled() {
  static const bool enabled = [] {
    const char* text = std::getenv("TESSERA_ALLOCATOR");
    return text == nullptr || std::string_view(text) != "system";
  }();
  return enabled;
}

}  // namespace

std::int64_t large_class_bytes(std::int64_t bytes) {
  constexpr std::int64_t kSmallest = 512;
  if (bytes <= kSmallest) return kSmallest;
  // 2^k < bytes <= 2^(k+1); the step between classes is 2^(k-3), a multiple of 64.
  const int k = std::bit_width(static_cast<std::uint64_t>(bytes - 1)) - 1;
  const std::int64_t step = std::int64_t{1} << (k - 3);
  return (bytes + step - 1) / step * step;
}

void* BlockPool::take(std::int64_t bytes) {
  // No address space is larger; checkers abort on such requests, and rounding up could overflow.
  if (bytes > (std::int64_t{1} << 47)) return nullptr;
  const std::int64_t class_bytes = large_class_bytes(bytes);
  std::lock_guard lock(mutex_);
  if (void* data = take_cached(class_bytes)) return data;
  if (void* data = reserve(class_bytes)) return data;
  release_cached_locked();
  return reserve(class_bytes);
}

void* BlockPool::take_cached(std::int64_t class_bytes) {
  for (auto it = cached_.lower_bound(class_bytes); it != cached_.end(); ++it) {
    if (it->first > class_bytes + class_bytes / 2) break;
    if (it->second.empty()) continue;
    void* data = it->second.back();
    it->second.pop_back();
    return data;
  }
  return nullptr;
}

void* BlockPool::reserve(std::int64_t class_bytes) {
  void* data = backend_.reserve(class_bytes);
  if (data == nullptr) return nullptr;
  // Room for all blocks of the class at once, so that giving back never allocates.
  cached_[class_bytes].reserve(class_of_.size() + 1);
  class_of_[data] = class_bytes;
  reserved_ += class_bytes;
  ++system_allocations_;
  return data;
}

void BlockPool::give(void* data) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = class_of_.find(data);
  if (found == class_of_.end()) return;
  if (cache_enabled()) {
    cached_[found->second].push_back(data);
    return;
  }
  backend_.release(data, found->second);
  reserved_ -= found->second;
  class_of_.erase(found);
}

void BlockPool::release_cached() {
  std::lock_guard lock(mutex_);
  release_cached_locked();
}

void BlockPool::release_cached_locked() {
  for (auto& [class_bytes, blocks] : cached_) {
    for (void* data : blocks) {
      backend_.release(data, class_bytes);
      reserved_ -= class_bytes;
      class_of_.erase(data);
    }
    blocks.clear();
  }
}

}  // namespace tessera::detail
