// Transport: how one rank posts messages and learns that they are done. Groups, works and collectives know
// only this, so MPI, threads of one process and the recorder look the same to them.
//
// A transport belongs to one thread. It never blocks: `poll` moves what can be moved and completes tickets.
// Messages of one sender with the same tag arrive in the order in which they were sent.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "runtime/error.h"

namespace tessera {

// One posted message. The transport completes it; its owner keeps it at its address until then or cancels it.
struct Ticket {
  std::int64_t* pending = nullptr;  // counts the owner's unfinished tickets
  int peer = 0;                     // rank in the owner's group, for messages to people
  bool send = false;
  bool done = false;
  std::string error;          // why it failed, empty when it did not
  bool peer_gave_up = false;  // it failed because of something that the peer knows

  void complete() {
    done = true;
    --*pending;
  }
};

class Placing;

struct Message {
  int peer = 0;  // rank of the transport's world
  int tag = 0;
  void* data = nullptr;
  std::int64_t bytes = 0;
  Placing* placing = nullptr;  // of a receive; lives as long as its ticket
  bool in_pieces = false;      // of a send, see SendBuffer
  bool at_once = false;        // likewise
  bool on_device = false;      // `data` is memory of a device, on both sides
};

// Whether a transport can be given addresses of a device's memory.
enum class TakesDeviceMemory : std::uint8_t { No, Unknown, Yes };

// A rank that has ended its run: what its program returned, and for how long that is known here.
struct RankEnd {
  int status = 0;
  double known_seconds = 0;
};

// A peer failed, or gave up what this rank waited for: the peer knows why.
class PeerFailed : public Error {
 public:
  using Error::Error;
};

class Transport {
 public:
  Transport() = default;
  virtual ~Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // How many of its ranks share this host's cores, this one included.
  virtual int ranks_on_host() const { return size(); }
  // Cores that these may run on, all together.
  virtual int cores_on_host() const;
  // Nothing is moved: messages are counted and dropped.
  virtual bool records_only() const { return false; }
  virtual TakesDeviceMemory takes_device_memory() const { return TakesDeviceMemory::No; }
  virtual void post_send(const Message& message, Ticket* ticket) = 0;
  virtual void post_recv(const Message& message, Ticket* ticket) = 0;
  virtual void poll() = 0;
  // Forgets an unfinished ticket. The memory of its message may be touched until the transport ends.
  virtual void cancel(Ticket* ticket) = 0;
  // Why no wait can succeed any more ("" while all is well).
  virtual std::string poison() const { return {}; }
  // Called by a wait that has polled `idle_polls` times in vain: gives the core to somebody who needs it.
  virtual void idle(int idle_polls);
  // How a rank has ended its run; nothing unless it is known to have. Asks that rank, the first time: for
  // waits that have lasted seconds, and for all where some rank is known to have ended.
  virtual std::optional<RankEnd> end_of(int /*rank*/) { return std::nullopt; }
  virtual bool knows_of_ends() const { return false; }
};

std::unique_ptr<Transport> make_recording_transport(int rank, int size);

}  // namespace tessera
