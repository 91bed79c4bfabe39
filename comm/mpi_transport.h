// Messages over MPI, on a communicator of our own: no message of the host program can meet one of ours.
//
// MPI_Testsome over all pending requests is the only way in which anything completes: a blocking MPI call
// cannot be given a deadline.
#pragma once
#include <mpi.h>

#include <vector>

#include "comm/transport.h"

namespace tessera {

class MpiTransport : public Transport {
 public:
  // Collective over `comm`.
  explicit MpiTransport(MPI_Comm comm);
  ~MpiTransport() override;

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void post_send(const Message& message, Ticket* ticket) override;
  void post_recv(const Message& message, Ticket* ticket) override;
  void poll() override;
  void cancel(Ticket* ticket) override;
  void idle(int idle_polls) override;
  MPI_Comm mpi_comm() const { return comm_; }

 private:
  struct Slot {
    Ticket* ticket = nullptr;  // null: cancelled
    std::int64_t bytes = 0;
  };
  void remember(MPI_Request request, Ticket* ticket, std::int64_t bytes);
  void finish(Slot& slot, const MPI_Status& status, int failed);
  void fail_all(const std::string& error);
  void drop_finished();

  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 1;
  bool own_core_ = false;  // there are as many cores on this host as ranks
  std::vector<MPI_Request> requests_;
  std::vector<Slot> slots_;
  // Scratch of poll.
  std::vector<MPI_Status> statuses_;
  std::vector<int> indices_;
};

}  // namespace tessera
