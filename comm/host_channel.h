// Messages between the ranks of one host, through memory that they share: a ring for every ordered pair.
//
// Every message to a rank of the host passes through the ring, in the order in which it was sent, so matching
// is ours. A short one is there with all its bytes: its sender is done at once, and its receiver copies it
// out when it looks. A long one stays where it is and is offered in the ring: its receiver reads it from the
// sender's memory, which is one copy instead of two, but the sender is done only when that has happened. So
// one whose sender waits for it at once anyway is offered from two pages on, one that travels while its
// sender computes only where it is too long for the ring. Where ranks may not read each other's memory, MPI
// carries what is too long. What finds no room waits at the sender, whose polls try again; nobody else waits
// for that. A receiver reads a ring only while it expects something of that rank; what it then finds in front
// of the message it waits for is set aside.
#pragma once
#include <mpi.h>

#include <deque>
#include <memory>
#include <vector>

#include "comm/mpi_requests.h"
#include "comm/ring.h"
#include "comm/shared_pages.h"
#include "comm/transport.h"

namespace tessera {

class HostChannel {
 public:
  struct Options {
    std::int64_t capacity = std::int64_t{1} << 21;  // of a ring, a multiple of 64
    std::int64_t longest = std::int64_t{1} << 18;   // message that goes through it;
    // twice that where its receiver has pieces to place: placing is the second copy that MPI would need, too
    std::int64_t shortest_read = std::int64_t{1} << 13;  // from its sender's memory, where that waits at once
    bool may_read = true;                                // messages from their senders' memory
    int most_ranks = 16;  // on a host; with more of them MPI carries everything
    int part = 0;         // ranks of a host that give another number count as another host
    bool wanted = wanted_by_environment();
  };
  static bool wanted_by_environment();  // TESSERA_SHARED_MEMORY=0: no

  // Collective over the communicator of `requests`, which carry the long messages. Options alike on all
  // ranks, except `wanted`: one rank of a host that does not want it is enough.
  HostChannel(MpiRequests& requests, const Options& options);

  int ranks() const { return ranks_; }  // on this host
  int cores() const { return cores_; }  // that these ranks may run on, all together
  bool is_open() const { return pages_ != nullptr && pages_->data() != nullptr; }
  bool reads_peers() const { return memory_.is_readable(); }
  // Of the memory that the ranks share, for each ordered pair.
  static std::int64_t bytes_of_pair(const Options& options) {
    return ring_bytes(options.capacity) + Offers::kBytes;
  }
  bool reaches(int peer) const { return peers_at_[static_cast<std::size_t>(peer)] != nullptr; }
  // Peers that are reached only. Nothing here throws what comes of MPI: a ticket learns it.
  void send(const Message& message, Ticket* ticket);
  void recv(const Message& message, Ticket* ticket);
  void poll();
  // False: the ticket is none of the channel's.
  bool cancel(Ticket* ticket);

 private:
  struct Posted {
    Message message;
    Ticket* ticket = nullptr;
  };
  // Came before it was expected.
  struct Early {
    std::unique_ptr<char[]> data;  // of a message that came whole
    RingReader::Message message;
  };
  struct Peer {
    int rank = 0;  // on this host
    RingWriter to;
    RingReader from;
    Offers offered;  // to it
    Offers to_read;  // from it
    std::vector<Posted> unsent;
    std::vector<Posted> expected;
    std::deque<Early> early;
  };
  void open(MPI_Comm host, const Options& options);
  bool is_offered(const Message& message) const;
  bool offer(Peer& peer, const Posted& posted, int slot);
  bool put(Peer& peer, const Posted& posted);
  void send_waiting(Peer& peer);
  void set_aside(Peer& peer, const RingReader::Message& message);
  void take(Peer& peer);
  void deliver(Peer& peer, const Posted& posted, const RingReader::Message& message);
  void read(Peer& peer, const Posted& posted, const RingReader::Message& message);

  MpiRequests& requests_;
  std::int64_t longest_;
  std::int64_t longest_in_pieces_;
  std::int64_t shortest_read_;
  int ranks_ = 1;
  int cores_ = 1;
  std::unique_ptr<SharedPages> pages_;
  PeerMemory memory_;
  std::vector<std::unique_ptr<Peer>> peers_;
  std::vector<Peer*> peers_at_;  // by rank of the communicator; null: not reached
};

}  // namespace tessera
