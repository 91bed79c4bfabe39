#include "comm/ring.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace tessera {

namespace {

constexpr std::int64_t kLine = 64;
// An empty ring is begun again after this many bytes: often enough to stay warm, too rarely to cost.
constexpr std::int64_t kWarmBytes = std::int64_t{1} << 16;

enum State : std::uint32_t { kNothing, kMessage, kAnnounced, kOffered, kGoToStart };

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
void set_state(Record& record, std::uint32_t state, std::memory_order order) {
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

struct RingWriter::Place {
  Record* record = nullptr;
  std::int64_t skip = 0;
  std::int64_t length = 0;
};

bool RingWriter::begin(std::int64_t length, Place& place) {
  const std::int64_t skip = skipped(length);
  if (!has_room(skip + length + kLine)) return false;  // one line more: the next record's
  set_state(record_at(memory_, (written_ + skip + length) % capacity_), kNothing, std::memory_order_relaxed);
  place = {&record_at(memory_, (written_ + skip) % capacity_), skip, length};
  return true;
}

void RingWriter::end(const Place& place, std::uint32_t state) {
  set_state(*place.record, state, std::memory_order_release);
  if (place.skip > 0)
    set_state(record_at(memory_, written_ % capacity_), kGoToStart, std::memory_order_release);
  written_ += place.skip + place.length;
}

bool RingWriter::put(int tag, const void* data, std::int64_t bytes) {
  Place place;
  if (!begin(data == nullptr ? kLine : length_of(bytes), place)) return false;
  Record& record = *place.record;
  record.tag = tag;
  record.bytes = bytes;
  char* const body = place.length == kLine ? record.inside : record.inside + kInside;
  if (data != nullptr) copy_.copy(body, static_cast<const char*>(data), bytes);
  end(place, data == nullptr ? kAnnounced : kMessage);
  return true;
}

bool RingWriter::offer(int tag, std::int64_t bytes, const Offers::Offer& offered) {
  Place place;
  if (!begin(kLine, place)) return false;
  place.record->tag = tag;
  place.record->bytes = bytes;
  std::memcpy(place.record->inside, &offered, sizeof offered);
  end(place, kOffered);
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
    const bool whole = state == kMessage;
    length_ = whole ? length_of(record.bytes) : kLine;
    const char* const body = length_ == kLine ? record.inside : record.inside + kInside;
    message = {record.tag, record.bytes, whole ? body : nullptr, state == kOffered, {}};
    if (message.offered) std::memcpy(&message.offer, record.inside, sizeof message.offer);
    return true;
  }
}

void RingReader::drop() { free(length_); }

}  // namespace tessera
