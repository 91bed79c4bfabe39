// Memory of the other processes of this host, read where it lies: a message that its sender leaves in place
// is copied once, by its receiver (process_vm_readv).
//
// A system may forbid it, as some containers do, and a process number may mean another process elsewhere. So
// each rank shows a word with its address when the communicator is made, and all try to read all of them.
#pragma once
#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <vector>

namespace tessera {

class PeerMemory {
 public:
  PeerMemory() = default;
  // Collective over `host`, whose ranks run on one host.
  PeerMemory(MPI_Comm host, bool wanted);

  // Alike on all ranks: each of them may read the others' memory.
  bool is_readable() const { return !processes_.empty(); }
  // From the memory of a rank of `host`; false: it could not be read.
  bool read(int rank, void* to, std::uint64_t from, std::int64_t bytes) const;

 private:
  std::vector<std::int32_t> processes_;
};

// Messages of one rank to another one that wait in the sender's memory, and the flags, shared by both, by
// which it learns that they were read.
struct Ticket;
class Offers {
 public:
  static constexpr int kSlots = 16;
  static constexpr std::int64_t kBytes = std::int64_t{64} * kSlots;  // of the flags: a cache line each
  // What the receiver is told.
  struct Offer {
    std::uint64_t address = 0;
    int slot = 0;
  };

  Offers() = default;
  // Zeroed memory, the same on both sides.
  explicit Offers(char* flags) : flags_(flags) {}

  // The sender's side. A slot is taken from `make` on, until `poll` sees that its message was read.
  int free_slot() const;  // -1: none
  void make(int slot, Ticket* ticket);
  bool any() const { return made_ != 0; }
  void poll();
  // The memory may be used for something else afterwards: who reads it later, or is reading it, is told.
  bool cancel(const Ticket* ticket);
  // The receiver's side, after it has read. False: the message was given up, and what was read may be
  // anything.
  bool answer(int slot, bool was_read);

 private:
  enum State : std::uint32_t { kOpen, kGivenUp, kRead, kUnreadable };
  std::atomic_ref<std::uint32_t> flag(int slot) const;

  char* flags_ = nullptr;
  unsigned made_ = 0;             // bits: slots that wait for an answer
  Ticket* tickets_[kSlots] = {};  // null: given up
};

}  // namespace tessera
