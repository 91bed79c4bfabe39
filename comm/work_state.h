// What a Work points at: a short program of phases. A phase posts receives, then sends; when all are done it
// runs its local step (sum, unpack) and the next phase follows. Collectives are written as such programs, so
// all of them run in the background in the same way.
//
// Where the ranks' devices are linked (device_link.h) the whole program of a work on their memory goes to the
// device at once, and no host has a part in it.
//
// Unfinished works of a thread are on one list; every poll advances all of them, because a peer may
// need the next phase of one work before it can finish the one that we wait for.
#pragma once
#include <exception>
#include <functional>

#include "comm/communicator.h"
#include "comm/device_link.h"
#include "comm/device_phase.h"
#include "comm/group.h"

namespace tessera {

class Work::State {
 public:
  State(std::shared_ptr<Group> group, const Call& call);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Phase& add_phase(int step);
  Phase& last_phase() { return phases_.back(); }
  void keep(Array array) { kept_.push_back(std::move(array)); }
  // Whose memory the transfers name.
  void set_device(Device device) { device_ = device; }
  // Posts the first phase.
  void start();
  bool finished() const { return finished_; }
  // Of memory of a device, begun before the capture that this thread is in.
  bool is_kept_from_capture() const;
  // Goes on as far as completed tickets allow. Failures are kept for `check`.
  void advance();
  bool poll();
  void wait();
  Group& group() const { return *group_; }
  const std::shared_ptr<Group>& shared_group() const { return group_; }

  // Polls the transports of this thread's unfinished works and advances these. Nothing within a step of one.
  static void advance_all();

 private:
  bool has_transfers() const;
  void count_mpi_work();
  void refuse_in_later_capture() const;
  void start_on_link(DeviceLink& link);
  void hold_for_link();
  void poll_link();
  void post();
  void post_transfers(const Phase& phase);
  void post_pieces(const Message& whole, int peer, bool send);
  void complete();
  void give_up(std::exception_ptr error);
  void check() const;
  void keep_unseen_error() const;
  bool is_excused() const { return number_ <= group_->endpoint().works_excused; }
  void excuse_others() const { group_->endpoint().works_excused = group_->endpoint().works_begun; }
  double seconds_to_unwind() const;
  bool wait_until(double seconds);
  // Gives up if one of the peers that are waited for has ended its run.
  struct PeerWatch {
    double next_look = 0;  // seconds after the wait began
    int ended = -1;        // who was seen to have ended at the last look
  };
  void look_after_peers(double waited, PeerWatch* watch);
  [[noreturn]] void refuse_deadline(double seconds);
  std::string missing_peers() const;
  void check_tickets() const;

  std::shared_ptr<Group> group_;
  Call call_;
  std::uint32_t sequence_;
  std::uint64_t number_;  // of the endpoint's works
  std::vector<Phase> phases_;
  std::vector<Array> kept_;
  std::size_t current_ = 0;
  std::unique_ptr<Ticket[]> tickets_;
  std::int64_t ticket_count_ = 0;
  std::int64_t pending_ = 0;
  Device device_ = Device::Cpu;
  std::unique_ptr<DevicePhase> on_device_;  // of the current phase, on another device
  std::unique_ptr<LinkedWork> linked_;
  bool active_ = false;
  bool captured_ = false;  // began in a capture
  bool finished_ = false;
  std::exception_ptr error_;
  mutable bool error_seen_ = false;
};

}  // namespace tessera
