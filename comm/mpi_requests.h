// Messages that MPI carries, on a communicator of our own.
//
// MPI_Testsome over all pending requests is the only way in which anything completes: a blocking MPI call
// cannot be given a deadline.
#pragma once
#include <mpi.h>

#include <vector>

#include "comm/transport.h"

namespace tessera {

// Refuses what an MPI function answers, unless it is success.
void check_mpi(int code, const char* function);
bool mpi_is_over();

class MpiRequests {
 public:
  // Collective over `comm`, which is duplicated.
  explicit MpiRequests(MPI_Comm comm);
  ~MpiRequests();
  MpiRequests(const MpiRequests&) = delete;
  MpiRequests& operator=(const MpiRequests&) = delete;

  // Nothing here throws: polls happen inside kernels. A ticket learns what went wrong.
  void send(const Message& message, Ticket* ticket);
  void recv(const Message& message, Ticket* ticket);
  void poll();
  void cancel(Ticket* ticket);
  MPI_Comm comm() const { return comm_; }

 private:
  struct Slot {
    Ticket* ticket = nullptr;  // null: cancelled
    std::int64_t bytes = 0;
  };
  void remember(int code, MPI_Request request, const Slot& slot);
  void finish(Slot& slot, const MPI_Status& status, int failed);
  void fail_all(const std::string& error);
  void drop_finished();
  void nudge();

  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  int idle_polls_ = -1;  // since the last request was done; -1: there never was one
  // Scratch of poll.
  std::vector<MPI_Status> statuses_;
  std::vector<int> indices_;
};

}  // namespace tessera
