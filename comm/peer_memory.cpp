#include "comm/peer_memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <chrono>

#include "comm/mpi_requests.h"

namespace tessera {

namespace {

struct Shown {
  std::int64_t process = 0;
  std::uint64_t address = 0;  // of the word
  std::uint64_t word = 0;
};

bool read_process(std::int32_t process, void* to, std::uint64_t from, std::int64_t bytes) {
  auto* place = static_cast<char*>(to);
  while (bytes > 0) {
    const auto wanted = static_cast<std::size_t>(bytes);
    const iovec here{place, wanted};
    const iovec there{reinterpret_cast<void*>(from), wanted};
    const ssize_t got = process_vm_readv(process, &here, 1, &there, 1, 0);
    if (got <= 0) return false;
    place += got;
    from += static_cast<std::uint64_t>(got);
    bytes -= got;
  }
  return true;
}

}  // namespace

PeerMemory::PeerMemory(MPI_Comm host, bool wanted) {
  int count = 1;
  check_mpi(MPI_Comm_size(host, &count), "MPI_Comm_size");
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const std::uint64_t word = now ^ (static_cast<std::uint64_t>(getpid()) << 40U);
  const Shown mine{getpid(), reinterpret_cast<std::uint64_t>(&word), word};
  std::vector<Shown> all(static_cast<std::size_t>(count));
  check_mpi(MPI_Allgather(&mine, sizeof mine, MPI_BYTE, all.data(), sizeof mine, MPI_BYTE, host),
            "MPI_Allgather");
  int readable = std::all_of(all.begin(), all.end(), [&](const Shown& shown) {
    std::uint64_t seen = 0;
    return wanted &&
           read_process(static_cast<std::int32_t>(shown.process), &seen, shown.address, sizeof seen) &&
           seen == shown.word;
  });
  // The words must stand until all have looked: this is that, too.
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &readable, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  if (readable == 0) return;
  for (const Shown& shown : all) processes_.push_back(static_cast<std::int32_t>(shown.process));
}

bool PeerMemory::read(int rank, void* to, std::uint64_t from, std::int64_t bytes) const {
  return read_process(processes_[static_cast<std::size_t>(rank)], to, from, bytes);
}

std::atomic_ref<std::uint32_t> Offers::flag(int slot) const {
  return std::atomic_ref<std::uint32_t>(
      *reinterpret_cast<std::uint32_t*>(flags_ + static_cast<std::ptrdiff_t>(64) * slot));
}

int Offers::free_slot() const {
  const int slot = std::countr_one(made_);
  return slot < kSlots ? slot : -1;
}

void Offers::make(int slot, Ticket* ticket) {
  made_ |= 1U << static_cast<unsigned>(slot);
  tickets_[slot] = ticket;
}

void Offers::poll() {
  for (unsigned rest = made_; rest != 0; rest &= rest - 1) {
    const int slot = std::countr_zero(rest);
    const std::uint32_t state = flag(slot).load(std::memory_order_acquire);
    if (state == kOpen || state == kGivenUp) continue;
    flag(slot).store(kOpen,
                     std::memory_order_relaxed);  // seen no later than the record that next tells of it
    made_ &= ~(1U << static_cast<unsigned>(slot));
    Ticket* const ticket = std::exchange(tickets_[slot], nullptr);
    if (ticket == nullptr) continue;
    if (state == kUnreadable) ticket->error = "the receiver could not read this rank's memory";
    ticket->complete();
  }
}

bool Offers::cancel(const Ticket* ticket) {
  if (ticket == nullptr) return false;
  const auto found = std::find(std::begin(tickets_), std::end(tickets_), ticket);
  if (found == std::end(tickets_)) return false;
  *found = nullptr;
  std::uint32_t open = kOpen;  // else it was read just now
  flag(static_cast<int>(found - std::begin(tickets_)))
      .compare_exchange_strong(open, kGivenUp, std::memory_order_acq_rel);
  return true;
}

bool Offers::answer(int slot, bool was_read) {
  return flag(slot).exchange(was_read ? kRead : kUnreadable, std::memory_order_acq_rel) != kGivenUp;
}

}  // namespace tessera
