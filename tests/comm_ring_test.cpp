// The ring alone: one thread writes, one reads.
#include <catch2/catch.hpp>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/ring.h"
#include "tests/support/world.h"

using namespace tessera;

namespace {

struct Ring {
  explicit Ring(std::int64_t capacity)
      : memory(static_cast<std::size_t>(ring_bytes(capacity)) / sizeof(Line)),
        writer(reinterpret_cast<char*>(memory.data()), capacity),
        reader(reinterpret_cast<char*>(memory.data()), capacity) {}

  struct alignas(64) Line {
    char bytes[64] = {};
  };
  std::vector<Line> memory;
  RingWriter writer;
  RingReader reader;
};

std::vector<char> content(int number, std::int64_t bytes) {
  std::vector<char> data(static_cast<std::size_t>(bytes));
  for (std::size_t i = 0; i < data.size(); ++i)
    data[i] = static_cast<char>(number * 31 + static_cast<int>(i) * 7);
  return data;
}

bool same(const RingReader::Message& message, int number, std::int64_t bytes) {
  const std::vector<char> wanted = content(number, bytes);
  return message.tag == number && message.bytes == bytes && message.data != nullptr &&
         std::memcmp(message.data, wanted.data(), wanted.size()) == 0;
}

// Lengths around those at which a record changes its shape, and any.
std::vector<std::int64_t> random_lengths(int count, std::int64_t longest, std::uint64_t stream) {
  auto random = test_random(stream);
  std::vector<std::int64_t> lengths;
  for (int i = 0; i < count; ++i) {
    const std::int64_t near[] = {48, 64, 1 << 14, longest};
    const std::int64_t middle = near[random_int(random, 0, 3)];
    const std::int64_t any = random_int(random, 0, longest);
    lengths.push_back(random_int(random, 0, 1) == 0
                          ? any
                          : std::clamp<std::int64_t>(middle + random_int(random, -2, 2), 0, longest));
  }
  return lengths;
}

}  // namespace

TEST_CASE("messages of all lengths come out in order while both sides run") {
  for (const std::int64_t capacity : {512, 4096, 1 << 17}) {
    Ring ring(capacity);
    const auto lengths = random_lengths(capacity > 10'000 ? 2000 : 20'000,
                                        std::min<std::int64_t>(longest_in_ring(capacity), 40'000), 1);
    std::thread writer([&] {
      for (std::size_t i = 0; i < lengths.size(); ++i) {
        const std::vector<char> data = content(static_cast<int>(i), lengths[i]);
        const void* const bytes = data.empty() ? "" : data.data();
        while (!ring.writer.put(static_cast<int>(i), bytes, lengths[i])) std::this_thread::yield();
      }
    });
    std::size_t wrong = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      RingReader::Message message;
      while (!ring.reader.peek(message)) std::this_thread::yield();
      wrong += same(message, static_cast<int>(i), lengths[i]) ? 0 : 1;
      ring.reader.drop();
    }
    writer.join();
    CHECK(wrong == 0);
    RingReader::Message none;
    CHECK_FALSE(ring.reader.peek(none));
  }
}

TEST_CASE(
    "a full ring refuses until something is read, and the longest message always finds room in the end") {
  constexpr std::int64_t kCapacity = 4096;
  Ring ring(kCapacity);
  for (int start = 0; start < 70; ++start) {  // wherever the ring happens to stand
    const std::vector<char> data = content(7, longest_in_ring(kCapacity));
    int put = 0;
    while (ring.writer.put(7, data.data(), static_cast<std::int64_t>(data.size()))) ++put;
    CHECK(put >= 1);
    CHECK(put <= 2);
    for (int i = 0; i < put; ++i) {
      RingReader::Message message;
      REQUIRE(ring.reader.peek(message));
      CHECK(same(message, 7, longest_in_ring(kCapacity)));
      ring.reader.drop();
    }
    REQUIRE(ring.writer.put(1, "", 0));
    RingReader::Message message;
    REQUIRE(ring.reader.peek(message));
    CHECK(same(message, 1, 0));
    ring.reader.drop();
  }
}

TEST_CASE("an announced message takes a line and has no data") {
  Ring ring(512);
  REQUIRE(ring.writer.put(3, nullptr, std::int64_t{1} << 40));
  RingReader::Message message;
  REQUIRE(ring.reader.peek(message));
  CHECK(message.tag == 3);
  CHECK(message.bytes == std::int64_t{1} << 40);
  CHECK(message.data == nullptr);
  ring.reader.drop();
  CHECK_FALSE(ring.reader.peek(message));
  int put = 0;
  while (ring.writer.put(4, nullptr, 1000)) ++put;
  CHECK(put == 7);  // 8 lines, one of which is the next record's
}
