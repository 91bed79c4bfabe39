#include "comm/first_failure.h"

#include <atomic>
#include <cstdint>

#include "comm/mpi_requests.h"

namespace tessera {
namespace {

using Word = std::uint32_t;  // of zeroed memory: 0 until a rank has asked
static_assert(std::atomic_ref<Word>::is_always_lock_free);

}  // namespace

FirstFailure::FirstFailure(MPI_Comm job, bool wanted, int part) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(job, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  MPI_Comm peers = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(host, part, 0, &peers), "MPI_Comm_split");
  pages_ = std::make_unique<SharedPages>(peers, sizeof(Word), wanted);
  int first = 0;  // the ranks of `peers` are in the order of `job`
  check_mpi(MPI_Comm_rank(job, &first), "MPI_Comm_rank");
  check_mpi(MPI_Bcast(&first, 1, MPI_INT, 0, peers), "MPI_Bcast");
  with_first_ = first == 0;
  MPI_Comm_free(&peers);
  MPI_Comm_free(&host);
}

FirstFailure::Speaker FirstFailure::ask() {
  if (!pages_ || pages_->data() == nullptr) return Speaker::Unknown;
  const std::atomic_ref<Word> asked(*reinterpret_cast<Word*>(pages_->data()));
  if (asked.exchange(1) != 0) return Speaker::Another;
  return with_first_ ? Speaker::This : Speaker::Unknown;
}

}  // namespace tessera
