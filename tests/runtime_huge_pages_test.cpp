// Blocks side by side in huge pages (runtime/host_arena.h).
#include <sys/mman.h>

#include <algorithm>
#include <catch2/catch.hpp>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "runtime/allocator.h"
#include "runtime/block_pool.h"
#include "runtime/host_arena.h"
#include "tests/support/world.h"

using namespace tessera;
using detail::HostArena;
using detail::kHugePage;

namespace {

struct Block {
  char* data;
  std::int64_t bytes;
  int mark;
};

bool aligned(const void* data, std::int64_t to) {
  return reinterpret_cast<std::uintptr_t>(data) % static_cast<std::uintptr_t>(to) == 0;
}

// Whether a block still holds what was written into it; its ends and one number a page are.
bool intact(const Block& b) {
  for (std::int64_t i = 0; i < b.bytes; i = i + 512 < b.bytes || i == b.bytes - 1 ? i + 512 : b.bytes - 1)
    if (b.data[i] != static_cast<char>(b.mark)) return false;
  return true;
}

// Of the mapping around `data`: what there is of `field`, in bytes.
std::int64_t mapped(const void* data, const std::string& field) {
  std::ifstream file("/proc/self/smaps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(data);
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    std::size_t at = 0;
    if (const std::size_t dash = line.find('-'); dash != std::string::npos && dash < line.find(' ')) {
      const std::uintptr_t first = std::stoull(line, &at, 16);
      inside = wanted >= first && wanted < std::stoull(line.substr(dash + 1), nullptr, 16);
    } else if (inside && line.rfind(field + ":", 0) == 0) {
      return std::stoll(line.substr(field.size() + 1)) * 1024;
    }
  }
  return 0;
}

// Whether the kernel gives huge pages now, to who asks for them as plainly as can be.
bool has_huge_pages() {
  constexpr std::int64_t kBytes = 4 * kHugePage;
  void* data = detail::map_huge_pages(kBytes);
  std::memset(data, 1, kBytes);
  const bool has = mapped(data, "AnonHugePages") >= kBytes;
  detail::unmap_huge_pages(data, kBytes);
  return has;
}

}  // namespace

TEST_CASE("blocks of an arena are aligned, apart from each other, and keep what is written") {
  std::mt19937 gen(static_cast<std::uint32_t>(test_seed()));
  HostArena arena;
  std::vector<Block> blocks;
  for (int i = 0; i < 2000; ++i) {
    if (blocks.size() < 60 && gen() % 3U != 0) {
      const bool large = gen() % 8U == 0;
      const std::int64_t bytes =
          1 + static_cast<std::int64_t>(gen() % (large ? HostArena::kLargestBlock : 900000));
      auto* data = static_cast<char*>(arena.take(bytes));
      REQUIRE(data != nullptr);
      REQUIRE(aligned(data, bytes >= kHugePage ? kHugePage : 64));
      std::memset(data, i % 127 + 1, static_cast<std::size_t>(bytes));
      blocks.push_back({data, bytes, i % 127 + 1});
    } else if (!blocks.empty()) {
      const auto at = blocks.begin() + static_cast<std::ptrdiff_t>(gen() % blocks.size());
      REQUIRE(intact(*at));
      REQUIRE(arena.give(at->data, at->bytes));
      blocks.erase(at);
    }
  }
  CHECK(std::all_of(blocks.begin(), blocks.end(), intact));
  int other = 0;
  CHECK_FALSE(arena.give(&other, 4));
  for (const Block& b : blocks) CHECK(arena.give(b.data, b.bytes));
}

TEST_CASE("what was given back to an arena serves again, joined with what lies beside it") {
  HostArena arena;
  constexpr std::int64_t kQuarter = HostArena::kLargestBlock;
  static_assert(HostArena::kRegion == 4 * kQuarter);
  std::vector<char*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(static_cast<char*>(arena.take(kQuarter)));
  auto* small = static_cast<char*>(arena.take(100000));
  REQUIRE(small == blocks[2] + kQuarter);
  std::vector<char*> parts;
  REQUIRE(arena.give(blocks[1], kQuarter));
  for (int i = 0; i < 16; ++i) parts.push_back(static_cast<char*>(arena.take(kQuarter / 16)));
  CHECK(parts.front() == blocks[1]);
  CHECK(parts.back() == blocks[1] + kQuarter / 16 * 15);
  for (const int i : {3, 1, 2, 0, 15, 4, 6, 5, 8, 7, 9, 14, 13, 10, 12, 11})
    REQUIRE(arena.give(parts[static_cast<std::size_t>(i)], kQuarter / 16));
  CHECK(arena.take(kQuarter) == blocks[1]);
}

TEST_CASE("the whole pages of what was given back go to the system, the others stay") {
  HostArena arena;
  auto* first = static_cast<char*>(arena.take(3 * kHugePage));
  auto* second = static_cast<char*>(arena.take(1 << 20));
  REQUIRE(second == first + 3 * kHugePage);
  std::memset(first, 1, 3 * kHugePage);
  std::memset(second, 2, 1 << 20);
  const auto resident = [&] {
    std::vector<unsigned char> pages(3 * kHugePage / 4096);
    REQUIRE(mincore(first, 3 * kHugePage, pages.data()) == 0);
    return std::count_if(pages.begin(), pages.end(), [](unsigned char p) { return (p & 1U) != 0; });
  };
  CHECK(resident() == 3 * kHugePage / 4096);
  REQUIRE(arena.give(first, 3 * kHugePage));
  CHECK(resident() == 0);
  CHECK(intact({second, 1 << 20, 2}));
}

TEST_CASE("activations lie in huge pages, also those that are no multiple of one") {
  if (!has_huge_pages() || !detail::keeps_blocks()) {
    WARN("no huge pages here: not tested");
    return;
  }
  std::vector<Array> maps;
  for (const std::int64_t bytes : {800000, 786432, 3300000, 6000000, 100000, 40000000}) {
    maps.push_back(Array::empty({bytes}, DType::Bool));
    std::memset(maps.back().data<bool>(), 0, static_cast<std::size_t>(bytes));
  }
  for (const Array& map : maps) {
    const void* data = map.data<bool>();
    INFO(map.numel());
    CHECK(mapped(data, "AnonHugePages") * 10 >= mapped(data, "Rss") * 9);
  }
}
