#include "runtime/block_pool.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "runtime/environment.h"

namespace tessera::detail {

namespace {

constexpr const char* kVariable = "TESSERA_ALLOCATOR";
[[maybe_unused]] const bool checked =
    (add_settings_check([] { environment_choice(kVariable, {"system"}); }), true);

}  // namespace

bool keeps_blocks() {
  // Asked while the library starts, where nobody could catch a refusal.
  static const bool keeps = [] {
    const char* text = std::getenv(kVariable);
    return text == nullptr || std::string_view(text) != "system";
  }();
  return keeps;
}

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
  // A memory checker is to see where each block ends. Drivers give nothing for no bytes.
  const std::int64_t class_bytes =
      keeps_blocks() ? large_class_bytes(bytes) : std::max<std::int64_t>(bytes, 1);
  std::lock_guard lock(mutex_);
  if (capturing_ != kEverybody) return take_private(class_bytes);
  if (void* data = take_cached(cached_, class_bytes)) return data;
  if (void* data = reserve(class_bytes)) return data;
  release_cached_locked();
  return reserve(class_bytes);
}

// Memory is not given back to the system meanwhile: that could wait for the device.
void* BlockPool::take_private(std::int64_t class_bytes) {
  Private& own = private_[capturing_];
  if (void* data = take_cached(own.cached, class_bytes)) return data;
  void* data = take_cached(cached_, class_bytes);
  if (data == nullptr) data = reserve(class_bytes);
  if (data == nullptr) return nullptr;
  Block& block = blocks_[data];
  own.cached[block.class_bytes].reserve(blocks_.size());  // so that giving back never allocates
  block.owner = capturing_;
  return data;
}

void* BlockPool::take_cached(Cached& cached, std::int64_t class_bytes) {
  for (auto it = cached.lower_bound(class_bytes); it != cached.end(); ++it) {
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
  cached_[class_bytes].reserve(blocks_.size() + 1);
  blocks_[data] = {class_bytes, kEverybody};
  reserved_ += class_bytes;
  ++system_allocations_;
  return data;
}

void BlockPool::give(void* data) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = blocks_.find(data);
  if (found == blocks_.end()) return;
  Block& block = found->second;
  if (block.owner != kEverybody) {
    // In a capture nothing has run yet.
    if (capturing_ == kEverybody) retire(data, block);
    private_[block.owner].cached[block.class_bytes].push_back(data);
  } else if (capturing_ != kEverybody) {
    block.owner = capturing_;
    private_[capturing_].parked.push_back(data);
  } else {
    give_to_everybody(data, block);
  }
}

void BlockPool::retire(void* data, const Block& block) const noexcept {
  if (backend_.retired != nullptr) backend_.retired(data, block.class_bytes);
}

void BlockPool::give_to_everybody(void* data, const Block& block) noexcept {
  if (keeps_blocks()) {
    retire(data, block);
    cached_[block.class_bytes].push_back(data);
    return;
  }
  backend_.release(data, block.class_bytes);
  reserved_ -= block.class_bytes;
  blocks_.erase(data);
}

int BlockPool::make_private() {
  std::lock_guard lock(mutex_);
  private_[++pools_made_];
  return pools_made_;
}

void BlockPool::begin_private(int pool) {
  std::lock_guard lock(mutex_);
  private_[pool].parked.reserve(private_[pool].parked.size() + blocks_.size());
  capturing_ = pool;
}

void BlockPool::end_private() {
  std::lock_guard lock(mutex_);
  capturing_ = kEverybody;
}

void BlockPool::release_private(int pool) noexcept {
  std::lock_guard lock(mutex_);
  const auto found = private_.find(pool);
  if (found == private_.end()) return;
  std::vector<void*> unused = std::move(found->second.parked);
  for (auto& [class_bytes, blocks] : found->second.cached)
    unused.insert(unused.end(), blocks.begin(), blocks.end());
  private_.erase(found);
  for (auto& [data, block] : blocks_)
    if (block.owner == pool) block.owner = kEverybody;  // what is still in use, too
  for (void* data : unused) give_to_everybody(data, Block(blocks_[data]));
}

void BlockPool::release_cached() {
  std::lock_guard lock(mutex_);
  if (capturing_ == kEverybody) release_cached_locked();
}

void BlockPool::release_cached_locked() {
  for (auto& [class_bytes, blocks] : cached_) {
    for (void* data : blocks) {
      backend_.release(data, class_bytes);
      reserved_ -= class_bytes;
      blocks_.erase(data);
    }
    blocks.clear();
  }
}

}  // namespace tessera::detail
