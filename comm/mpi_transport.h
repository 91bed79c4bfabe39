// Messages over MPI, on a communicator of our own: no message of the host program can meet one of ours. Ranks
// of one host pass shorter ones through memory that they share, unless they are memory of a device.
#pragma once
#include <mpi.h>

#include "comm/host_channel.h"
#include "comm/mpi_requests.h"
#include "comm/transport.h"

namespace tessera {

class MpiTransport : public Transport {
 public:
  // Collective over `comm`.
  explicit MpiTransport(MPI_Comm comm) : MpiTransport(comm, HostChannel::Options()) {}
  MpiTransport(MPI_Comm comm, const HostChannel::Options& options);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int ranks_on_host() const override { return ranks_on_host_; }
  int cores_on_host() const override { return channel_.cores(); }
  // What the MPI library says of itself.
  TakesDeviceMemory takes_device_memory() const override;
  void post_send(const Message& message, Ticket* ticket) override;
  void post_recv(const Message& message, Ticket* ticket) override;
  void poll() override;
  void cancel(Ticket* ticket) override;
  std::optional<RankEnd> end_of(int rank) override;
  bool knows_of_ends() const override;
  void idle(int idle_polls) override;
  const HostChannel& channel() const { return channel_; }
  // A wait may spin: as far as this transport knows, no other rank needs the core.
  bool has_own_core() const { return own_core_; }

 private:
  bool by_channel(const Message& message) const;

  MpiRequests requests_;
  HostChannel channel_;
  int rank_ = 0;
  int size_ = 1;
  int ranks_on_host_ = 1;
  bool own_core_ = false;  // the ranks of this host have as many cores
};

}  // namespace tessera
