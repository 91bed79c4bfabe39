#include "runtime/cache_size.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <string>

namespace tessera {
namespace {

// Of a file that says "32768K"; 0 where there is none.
std::int64_t cache_of(int index) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/size");
  std::int64_t size = 0;
  char unit = ' ';
  if (!(file >> size)) return 0;
  file >> unit;
  return size * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1);
}

std::int64_t largest_cache() {
  std::int64_t most = 0;
  for (int index = 0; index < 8; ++index) most = std::max(most, cache_of(index));
  return most > 0 ? most : std::numeric_limits<std::int64_t>::max();
}

}  // namespace

std::int64_t last_level_cache() {
  static const std::int64_t bytes = largest_cache();
  return bytes;
}

}  // namespace tessera
