#include "comm/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>

#include "comm/mpi_requests.h"

namespace tessera {

namespace {

// How the other ranks find what rank 0 made.
struct Offer {
  std::int64_t process = 0;
  std::int64_t file = -1;  // -1: nothing was made
  std::uint64_t bytes = 0;
  std::uint64_t mark = 0;  // stands behind the memory: a process number may mean another process elsewhere
  std::uint64_t size() const { return bytes + sizeof mark; }
};

// A write beyond the process's limit for files would end it by a signal.
bool may_write(std::uint64_t bytes) {
  rlimit limit{};
  return getrlimit(RLIMIT_FSIZE, &limit) == 0 && bytes <= limit.rlim_cur;
}

Offer make_offer(std::size_t bytes) {
  if (!may_write(Offer{.bytes = bytes}.size())) return {};
  const int file = memfd_create("tessera", MFD_CLOEXEC);
  if (file < 0) return {};
  const auto now = static_cast<std::uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  const Offer offer{getpid(), file, bytes, now ^ (static_cast<std::uint64_t>(getpid()) << 40U)};
  if (pwrite(file, &offer.mark, sizeof offer.mark, static_cast<off_t>(bytes)) == sizeof offer.mark)
    return offer;
  close(file);
  return {};
}

int open_offer(const Offer& offer) {
  const std::string path = fmt::format("/proc/{}/fd/{}", offer.process, offer.file);
  return open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);  // it may be any file of anybody
}

char* map_file(int file, const Offer& offer) {
  struct stat about {};
  std::uint64_t mark = 0;
  if (fstat(file, &about) != 0 || about.st_size != static_cast<off_t>(offer.size()) ||
      pread(file, &mark, sizeof mark, static_cast<off_t>(offer.bytes)) != sizeof mark || mark != offer.mark)
    return nullptr;
  void* memory = mmap(nullptr, offer.bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<char*>(memory);
}

bool agreed(MPI_Comm host, bool mine) {
  int all = mine ? 1 : 0;
  check_mpi(MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_MIN, host), "MPI_Allreduce");
  return all == 1;
}

}  // namespace

SharedPages::SharedPages(MPI_Comm host, std::size_t bytes, bool wanted) {
  if (!agreed(host, wanted)) return;
  int rank = 0;
  check_mpi(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  Offer offer;
  if (rank == 0) offer = make_offer(bytes);
  check_mpi(MPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, host), "MPI_Bcast");
  if (offer.file < 0) return;
  const int file = rank == 0 ? static_cast<int>(offer.file) : open_offer(offer);
  char* memory = file < 0 ? nullptr : map_file(file, offer);
  const bool all = agreed(host, memory != nullptr);  // and rank 0's file was open until all had it
  if (file >= 0) close(file);
  if (all) {
    data_ = memory;
    bytes_ = offer.bytes;
  } else if (memory != nullptr) {
    munmap(memory, offer.bytes);
  }
}

SharedPages::~SharedPages() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace tessera
