#include "ops/cpu/block_sink.h"

#include <algorithm>
#include <atomic>
#include <limits>

#include "runtime/cache_size.h"

namespace tessera::cpu {
namespace {

std::int64_t suggested() {
  return has_stream_copy() ? last_level_cache() : std::numeric_limits<std::int64_t>::max();
}

std::atomic<std::int64_t>& least_bytes() {
  static std::atomic<std::int64_t> bytes{suggested()};
  return bytes;
}

}  // namespace

bool past_caches(const Array& results, std::initializer_list<const Array*> operands) {
  if (results.storage()->bytes() < least_bytes().load(std::memory_order_relaxed)) return false;
  return std::none_of(operands.begin(), operands.end(),
                      [&](const Array* a) { return a->raw() == results.raw(); });
}
void set_past_caches_from(std::int64_t bytes) {
  least_bytes().store(bytes > 0 ? bytes : suggested(), std::memory_order_relaxed);
}

}  // namespace tessera::cpu
