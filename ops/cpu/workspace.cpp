#include "ops/cpu/workspace.h"

#include <algorithm>
#include <cstdlib>
#include <new>

namespace tessera::cpu {

namespace {
constexpr std::int64_t kAlign = 64;
constexpr std::int64_t kLeast = 1 << 20;
}  // namespace

void Workspace::Free::operator()(char* p) const { std::free(p); }

Workspace& Workspace::begin() {
  thread_local Workspace own;
  own.reset();
  return own;
}

// Several chunks mean that the last call outgrew the first: one that holds it all takes their place.
void Workspace::reset() {
  if (chunks_.size() > 1) {
    chunks_.clear();
    add_chunk(total_);
  }
  used_ = 0;
  total_ = 0;
}

void Workspace::add_chunk(std::int64_t bytes) {
  const std::int64_t size = (std::max(bytes, kLeast) + kAlign - 1) / kAlign * kAlign;
  auto* memory = static_cast<char*>(std::aligned_alloc(kAlign, static_cast<std::size_t>(size)));
  if (memory == nullptr) throw std::bad_alloc();
  chunks_.push_back({std::unique_ptr<char, Free>(memory), size});
  used_ = 0;
}

void* Workspace::take_bytes(std::int64_t bytes) {
  const std::int64_t size = (std::max<std::int64_t>(bytes, 1) + kAlign - 1) / kAlign * kAlign;
  if (chunks_.empty() || used_ + size > chunks_.back().size) add_chunk(size);
  char* p = chunks_.back().memory.get() + used_;
  used_ += size;
  total_ += size;
  return p;
}

}  // namespace tessera::cpu
