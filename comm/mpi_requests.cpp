#include "comm/mpi_requests.h"

namespace tessera {

namespace {

std::string mpi_error_text(int code) {
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return {text, static_cast<std::size_t>(length)};
}

}  // namespace

void check_mpi(int code, const char* function) {
  if (code != MPI_SUCCESS) [[unlikely]]
    TS_FAIL(Comm, "mpi", "{} failed: {}", function, mpi_error_text(code));
}

bool mpi_is_over() {
  int over = 0;
  MPI_Finalized(&over);
  return over != 0;
}

MpiRequests::MpiRequests(MPI_Comm comm) {
  check_mpi(MPI_Comm_dup(comm, &comm_), "MPI_Comm_dup");
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

MpiRequests::~MpiRequests() {
  if (mpi_is_over()) return;
  for (MPI_Request& request : requests_) MPI_Request_free(&request);
  MPI_Comm_free(&comm_);
}

void MpiRequests::remember(int code, MPI_Request request, const Slot& slot) {
  idle_polls_ = 0;
  if (code == MPI_SUCCESS) {
    requests_.push_back(request);
    slots_.push_back(slot);
    return;
  }
  slot.ticket->error = mpi_error_text(code);
  slot.ticket->complete();
}

void MpiRequests::send(const Message& m, Ticket* ticket) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Isend(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, m.tag, comm_, &request);
  remember(code, request, {ticket, m.bytes});
}

void MpiRequests::recv(const Message& m, Ticket* ticket) {
  MPI_Request request = MPI_REQUEST_NULL;
  const int code = MPI_Irecv(m.data, static_cast<int>(m.bytes), MPI_BYTE, m.peer, m.tag, comm_, &request);
  remember(code, request, {ticket, m.bytes});
}

// MPI may still have to move what it has called done. As long as we wait for something that does not come by
// MPI, nobody else would let it.
void MpiRequests::nudge() {
  constexpr int kPolls = 64;
  if (idle_polls_ < 0 || ++idle_polls_ < kPolls) return;
  idle_polls_ = 0;
  int found = 0;
  MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm_, &found, MPI_STATUS_IGNORE);
}

void MpiRequests::poll() {
  if (requests_.empty()) {
    nudge();
    return;
  }
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

void MpiRequests::finish(Slot& slot, const MPI_Status& status, int failed) {
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

void MpiRequests::fail_all(const std::string& error) {
  for (const Slot& slot : slots_) {
    if (slot.ticket == nullptr) continue;
    slot.ticket->error = error;
    slot.ticket->complete();
  }
  requests_.clear();
  slots_.clear();
}

void MpiRequests::drop_finished() {
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

void MpiRequests::cancel(Ticket* ticket) {
  for (std::size_t i = 0; i < slots_.size(); ++i) {
    if (slots_[i].ticket != ticket) continue;
    slots_[i].ticket = nullptr;
    if (!ticket->send && !mpi_is_over()) MPI_Cancel(&requests_[i]);
  }
}

}  // namespace tessera
