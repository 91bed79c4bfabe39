#include "comm/ring.h"

#include <algorithm>
#include <atomic>

namespace tessera {

namespace {

constexpr std::int64_t kLine = 64;
// An empty ring is begun again after this many bytes: often enough to stay warm, too rarely to cost.
constexpr std::int64_t kWarmBytes = std::int64_t{1} << 16;

enum State : std::uint32_t { kNothing, kMessage, kAnnounced, kGoToStart };

struct Record {
  std::uint32_t state;
  std::int32_t tag;
  std::int64_t bytes;
  char inside[kLine - 16];
};
static_assert(sizeof(Record) == kLine);
static_assert(std::atomic_ref<std::uint32_t>::is_always_lock_free &&
              std::atomic_ref<std::int64_t>::is_always_lock_free);

constexpr auto kInside = static_cast<std::int64_t>(sizeof(Record::inside));

Record& record_at(char* memory, std::int64_t place) {
  return *reinterpret_cast<Record*>(memory + kRingHead + place);
}
void set_state(Record& record, State state, std::memory_order order) {
  std::atomic_ref<std::uint32_t>(record.state).store(state, order);
}
std::atomic_ref<std::int64_t> freed_in(char* memory) {
  return std::atomic_ref<std::int64_t>(*reinterpret_cast<std::int64_t*>(memory));
}

std::int64_t length_of(std::int64_t bytes) {
  return kLine + (bytes <= kInside ? 0 : (bytes + kLine - 1) / kLine * kLine);
}

}  // namespace

bool RingWriter::has_room(std::int64_t bytes) {
  if (bytes <= capacity_ - (written_ - freed_)) return true;
  freed_ = freed_in(memory_).load(std::memory_order_acquire);
  return bytes <= capacity_ - (written_ - freed_);
}

bool RingWriter::is_empty() {
  freed_ = freed_in(memory_).load(std::memory_order_acquire);
  return freed_ == written_;
}

// How much is left unused before a record of this length, so that it lies in one piece.
std::int64_t RingWriter::skipped(std::int64_t length) {
  const std::int64_t place = written_ % capacity_;
  const bool again = place >= std::max(kWarmBytes, length + kLine) && is_empty();
  return again || place + length > capacity_ ? capacity_ - place : 0;
}

bool RingWriter::put(int tag, const void* data, std::int64_t bytes) {
  const std::int64_t length = data == nullptr ? kLine : length_of(bytes);
  const std::int64_t skip = skipped(length);
  if (!has_room(skip + length + kLine)) return false;  // one line more: the next record's
  Record& here = record_at(memory_, written_ % capacity_);
  Record& record = record_at(memory_, (written_ + skip) % capacity_);
  set_state(record_at(memory_, (written_ + skip + length) % capacity_), kNothing, std::memory_order_relaxed);
  record.tag = tag;
  record.bytes = bytes;
  char* const body = length == kLine ? record.inside : record.inside + kInside;
  if (data != nullptr) copy_.copy(body, static_cast<const char*>(data), bytes);
  set_state(record, data == nullptr ? kAnnounced : kMessage, std::memory_order_release);
  if (skip > 0) set_state(here, kGoToStart, std::memory_order_release);
  written_ += skip + length;
  return true;
}

void RingReader::free(std::int64_t bytes) {
  read_ += bytes;
  freed_in(memory_).store(read_, std::memory_order_release);
}

bool RingReader::peek(Message& message) {
  for (;;) {
    const std::int64_t place = read_ % capacity_;
    Record& record = record_at(memory_, place);
    const std::uint32_t state = std::atomic_ref<std::uint32_t>(record.state).load(std::memory_order_acquire);
    if (state == kNothing) return false;
    if (state == kGoToStart) {
      free(capacity_ - place);
      continue;
    }
    length_ = state == kAnnounced ? kLine : length_of(record.bytes);
    const char* const body = length_ == kLine ? record.inside : record.inside + kInside;
    message = {record.tag, record.bytes, state == kAnnounced ? nullptr : body};
    return true;
  }
}

void RingReader::drop() { free(length_); }

}  // namespace tessera
