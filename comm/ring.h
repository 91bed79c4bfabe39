// A ring of messages in memory that two processes (or threads) share: one writes, one reads, neither waits.
//
// A message is a record: one cache line that says what it is, then its bytes (short ones stand in that line).
// The writer clears the line where the next record will begin, fills in the record and then sets its state;
// so the reader finds out by looking at that one line. What the reader has freed stands in a line of its own.
// A writer that finds the ring empty begins at its start again, so that memory stays warm and few pages are
// touched.
#pragma once
#include <cstdint>

#include "comm/copy_choice.h"
#include "comm/peer_memory.h"

namespace tessera {

// What a ring of `capacity` bytes takes.
constexpr std::int64_t kRingHead = 128;  // two lines: neighbours are fetched in pairs
constexpr std::int64_t ring_bytes(std::int64_t capacity) { return kRingHead + capacity; }
// The longest message that a ring always takes once it is empty.
constexpr std::int64_t longest_in_ring(std::int64_t capacity) { return capacity / 128 * 64 - 64; }

class RingWriter {
 public:
  RingWriter() = default;
  // Zeroed memory of ring_bytes(capacity), capacity a multiple of 64.
  RingWriter(char* memory, std::int64_t capacity) : memory_(memory), capacity_(capacity) {}

  // Puts a message; false: there is no room now. Without data it is only announced.
  bool put(int tag, const void* data, std::int64_t bytes);
  // Announces one that its receiver reads from the writer's memory.
  bool offer(int tag, std::int64_t bytes, const Offers::Offer& offered);

 private:
  struct Place;  // of a record that is being written
  bool begin(std::int64_t length, Place& place);
  void end(const Place& place, std::uint32_t state);
  bool has_room(std::int64_t bytes);
  bool is_empty();
  std::int64_t skipped(std::int64_t length);

  char* memory_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t written_ = 0;  // bytes ever, as everything here
  std::int64_t freed_ = 0;    // as last seen
  CopyChoice copy_;
};

class RingReader {
 public:
  struct Message {
    int tag = 0;
    std::int64_t bytes = 0;
    const char* data = nullptr;  // null: announced
    bool offered = false;        // then `offer` says where it lies
    Offers::Offer offer;
  };

  RingReader() = default;
  RingReader(char* memory, std::int64_t capacity) : memory_(memory), capacity_(capacity) {}

  // The oldest message, which stays until it is dropped; false: none.
  bool peek(Message& message);
  void drop();

 private:
  void free(std::int64_t bytes);

  char* memory_ = nullptr;
  std::int64_t capacity_ = 0;
  std::int64_t read_ = 0;
  std::int64_t length_ = 0;  // of the record shown by peek
};

}  // namespace tessera
