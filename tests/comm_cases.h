// Bodies of the communication tests. They run on any communicator: under MPI, on virtual ranks, on
// sub-groups, with their data on test_device(). So they throw where a value is wrong (Catch's assertions
// belong to one thread).
#pragma once
#include <cstring>
#include <vector>

#include "comm/communicator.h"
#include "runtime/error.h"

namespace tessera::comm_cases {

template <class... Args>
void expect(bool condition, fmt::format_string<Args...> text, Args&&... args) {
  if (!condition) fail(ErrorKind::Internal, "expect", fmt::format(text, std::forward<Args>(args)...));
}

// The message of the Error that f throws; fails if it throws none.
template <class F>
std::string message_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.message();
  }
  fail(ErrorKind::Internal, "expect", "an error was expected, none came");
}
inline bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// Takes a message elsewhere than to the buffer that was named for it.
class Elsewhere : public Placing {
 public:
  explicit Elsewhere(std::size_t bytes) : bytes_(bytes) {}
  void place(const void* bytes) override {
    expect(!called_, "a message was placed twice");
    called_ = true;
    if (!bytes_.empty()) std::memcpy(bytes_.data(), bytes, bytes_.size());
  }
  bool was_called() const { return called_; }
  // Where the message is, which must not be in both places.
  const unsigned char* where(const unsigned char* buffer) const {
    if (!called_) return buffer;
    for (std::size_t i = 0; i < bytes_.size(); ++i)
      expect(buffer[i] == 0xee, "byte {} of the buffer of a placed message was written", i);
    return bytes_.data();
  }

 private:
  std::vector<unsigned char> bytes_;
  bool called_ = false;
};

// Values that rank r contributes; exact in every dtype that can hold them.
Array contribution(int rank, const Dims& sizes, DType dtype);
// The same bits?
bool equal(const Array& a, const Array& b);
// All ranks have the same bits in `array`?
bool same_on_all_ranks(const Communicator& comm, const Array& array);
// What the reduction of all ranks' `contribution`s must be, added in rank order.
Array reduced(int ranks, const Dims& sizes, DType dtype, ReduceOp op);

// Random lists, sizes from 0 to `max_bytes`, each byte coded by sender, receiver, place and round.
void random_exchanges(const Communicator& comm, int rounds, std::int64_t max_bytes);
void all_reduces(const Communicator& comm, const std::vector<std::int64_t>& lengths);
void reduce_scatters(const Communicator& comm);
void movements(const Communicator& comm);
void strided_arrays(const Communicator& comm);
void host_values(const Communicator& comm);
// Works of several groups under way at once, finished in another order on every rank.
void interleaved_groups(const Communicator& comm);

}  // namespace tessera::comm_cases
