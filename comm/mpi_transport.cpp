#include "comm/mpi_transport.h"

#include "comm/ended.h"
#include "comm/mpi_cuda.h"

namespace tessera {

MpiTransport::MpiTransport(MPI_Comm comm, const HostChannel::Options& options)
    : requests_(comm), channel_(requests_, options) {
  check_mpi(MPI_Comm_rank(requests_.comm(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(requests_.comm(), &size_), "MPI_Comm_size");
  ranks_on_host_ = channel_.ranks();
  own_core_ = ranks_on_host_ <= channel_.cores();
  void* value = nullptr;  // this attribute exists on the world only
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  const int largest = found != 0 ? *static_cast<int*>(value) : 32767;
  TS_CHECK(largest == INT32_MAX, "mpi", "this MPI library allows message tags up to {}, but {} are needed",
           largest, INT32_MAX);
}

// Giving the core away takes longer than most messages.
void MpiTransport::idle(int idle_polls) {
  constexpr int kSpins = 1 << 15;
  if (!own_core_ || idle_polls > kSpins) Transport::idle(idle_polls);
}

std::optional<RankEnd> MpiTransport::end_of(int rank) {
  MPI_Group own = MPI_GROUP_NULL;
  MPI_Group job = MPI_GROUP_NULL;
  MPI_Comm_group(requests_.comm(), &own);
  MPI_Comm_group(MPI_COMM_WORLD, &job);
  int rank_in_job = MPI_UNDEFINED;
  MPI_Group_translate_ranks(own, 1, &rank, job, &rank_in_job);
  MPI_Group_free(&own);
  MPI_Group_free(&job);
  if (rank_in_job == MPI_UNDEFINED) return std::nullopt;
  return ended_ranks().end_of(rank_in_job);
}

bool MpiTransport::knows_of_ends() const { return ended_ranks().know_of_any(); }

TakesDeviceMemory MpiTransport::takes_device_memory() const {
  return mpi_is_cuda_aware() ? TakesDeviceMemory::Yes : TakesDeviceMemory::Unknown;
}

bool MpiTransport::by_channel(const Message& m) const { return !m.on_device && channel_.reaches(m.peer); }

void MpiTransport::post_send(const Message& m, Ticket* ticket) {
  if (by_channel(m)) {
    channel_.send(m, ticket);
  } else {
    requests_.send(m, ticket);
  }
}

void MpiTransport::post_recv(const Message& m, Ticket* ticket) {
  if (by_channel(m)) {
    channel_.recv(m, ticket);
  } else {
    requests_.recv(m, ticket);
  }
}

void MpiTransport::poll() {
  channel_.poll();
  requests_.poll();
}

void MpiTransport::cancel(Ticket* ticket) {
  if (!channel_.cancel(ticket)) requests_.cancel(ticket);
}

}  // namespace tessera
