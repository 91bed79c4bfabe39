#include "comm/mpi_transport.h"

#include <unistd.h>

#include <algorithm>

namespace tessera {

namespace {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

void check_mpi(int code, const char* function) {
  if (code != MPI_SUCCESS) [[unlikely]]
    TS_FAIL(Comm, "mpi", "{} failed: {}", function, mpi_error_text(code));
}

bool mpi_is_over() {
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
}

int ranks_beside(MPI_Comm comm) {
  MPI_Comm host = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int ranks = 1;
  MPI_Comm_size(host, &ranks);
  MPI_Comm_free(&host);
  return ranks;
}

}  // namespace

MpiTransport::MpiTransport(MPI_Comm comm) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_, &size_), "MPI_Comm_size");
  own_core_ = ranks_beside(comm_) <= sysconf(_SC_NPROCESSORS_ONLN);
  void* value = nullptr;  // this attribute exists on the world only
  int found = 0;
  MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &value, &found);
  const int largest = found != 0 ? *static_cast<int*>(value) : 32767;
  TS_CHECK(largest == INT32_MAX, "mpi", "this MPI library allows message tags up to {}, but {} are needed",
           largest, INT32_MAX);
}

MpiTransport::~MpiTransport() {
  if (mpi_is_over()) return;
  for (MPI_Request& request : requests_) MPI_Request_free(&request);
  MPI_Comm_free(&comm_);
}

// Giving the core away takes longer than most messages.
void MpiTransport::idle(int idle_polls) {
  constexpr int kSpins = 4096;
  if (!own_core_ || idle_polls > kSpins) Transport::idle(idle_polls);
}

void MpiTransport::remember(MPI_Request request, Ticket* ticket, std::int64_t bytes) {
  requests_.push_back(request);
  slots_.push_back({ticket, bytes});
}

void MpiTransport::post_send(const Message& m, Ticket* ticket) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Isend(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, m.tag, comm_, &request),
            "MPI_Isend");
  remember(request, ticket, m.bytes);
}

void MpiTransport::post_recv(const Message& m, Ticket* ticket) {
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(MPI_Irecv(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, m.tag, comm_, &request),
            "MPI_Irecv");
  remember(request, ticket, m.bytes);
}

void MpiTransport::poll() {
  if (requests_.empty()) return;
  const std::size_t n = requests_.size();
  if (statuses_.size() < n) {
    statuses_.resize(n);
    indices_.resize(n);
  }
  int count = 0;
  const int code =
      MPI_Testsome(static_cast<int>(n), requests_.data(), &count, indices_.data(), statuses_.data());
  if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
    fail_all(mpi_error_text(code));
    return;
  }
  if (count == MPI_UNDEFINED || count == 0) return;
  for (int i = 0; i < count; ++i) {
    const auto k = static_cast<std::size_t>(i);
    const int failed = code == MPI_ERR_IN_STATUS ? statuses_[k].MPI_ERROR : MPI_SUCCESS;
    finish(slots_[static_cast<std::size_t>(indices_[k])], statuses_[k], failed);
  }
  drop_finished();
}

void MpiTransport::finish(Slot& slot, const MPI_Status& status, int failed) {
  Ticket* ticket = slot.ticket;
  slot.ticket = nullptr;
  if (ticket == nullptr) return;  // cancelled
  if (failed != MPI_SUCCESS) {
    ticket->error = mpi_error_text(failed);
  } else if (!ticket->send) {
    MPI_Count received = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &received);
    if (received != slot.bytes) {
      ticket->error =
          fmt::format("{} bytes came, but {} were expected", static_cast<long long>(received), slot.bytes);
    }
  }
  ticket->complete();
}

// No exception: polls happen inside kernels. The works learn it from their tickets.
void MpiTransport::fail_all(const std::string& error) {
  for (const Slot& slot : slots_) {
    if (slot.ticket == nullptr) continue;
    slot.ticket->error = error;
    slot.ticket->complete();
  }
  requests_.clear();
  slots_.clear();
}

void MpiTransport::drop_finished() {
  std::size_t kept = 0;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i] == MPI_REQUEST_NULL) continue;
    requests_[kept] = requests_[i];
    slots_[kept] = slots_[i];
    ++kept;
  }
  requests_.resize(kept);
  slots_.resize(kept);
}

void MpiTransport::cancel(Ticket* ticket) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].ticket != ticket) continue;
    slots_[i].ticket = nullptr;
    if (!ticket->send && !mpi_is_over()) MPI_Cancel(&requests_[i]);
  }
}

}  // namespace tessera
