// What a Work points at: a short program of phases. A phase posts receives, then sends; when all are done it
// runs its local step (sum, unpack) and the next phase follows. Collectives are written as such programs, so
// all of them run in the background in the same way.
//
// Unfinished works of a thread are on one list; every poll advances all of them, because a peer may
// need the next phase of one work before it can finish the one that we wait for.
#pragma once
#include <exception>
#include <functional>

#include "comm/communicator.h"
#include "comm/group.h"

namespace tessera {

struct Transfer {
  int peer = 0;  // rank in the group
  char* data = nullptr;
  std::int64_t bytes = 0;
};

struct Phase {
  // Part of the tag: equal on both sides of a message.
  int step = 0;
  std::vector<Transfer> recvs;
  std::vector<Transfer> sends;
  std::function<void()> finish;

  // Empty messages are left out on both sides.
  void recv(int peer, void* data, std::int64_t bytes) {
    if (bytes > 0) recvs.push_back({peer, static_cast<char*>(data), bytes});
  }
  void send(int peer, const void* data, std::int64_t bytes) {
    if (bytes > 0) sends.push_back({peer, const_cast<char*>(static_cast<const char*>(data)), bytes});
  }
};

class Work::State {
 public:
  State(std::shared_ptr<Group> group, const Call& call);
  ~State();
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  Phase& add_phase(int step);
  Phase& last_phase() { return phases_.back(); }
  void keep(Array array) { kept_.push_back(std::move(array)); }
  // Posts the first phase.
  void start();
  bool finished() const { return finished_; }
  // Goes on as far as completed tickets allow. Failures are kept for `check`.
  void advance();
  bool poll();
  void wait();
  Group& group() const { return *group_; }
  const std::shared_ptr<Group>& shared_group() const { return group_; }

  // Polls the transports of this thread's unfinished works and advances these.
  static void advance_all();

 private:
  void post();
  void post_piece(const Message& whole, int peer, bool send);
  void complete();
  void give_up(std::exception_ptr error);
  void check() const;
  void report_unseen_error() const;
  bool wait_until(double seconds);
  [[noreturn]] void refuse_deadline(double seconds);
  std::string missing_peers() const;
  std::string first_error() const;

  std::shared_ptr<Group> group_;
  Call call_;
  std::uint32_t sequence_;
  std::vector<Phase> phases_;
  std::vector<Array> kept_;
  std::size_t current_ = 0;
  std::unique_ptr<Ticket[]> tickets_;
  std::int64_t ticket_count_ = 0;
  std::int64_t pending_ = 0;
  bool active_ = false;
  bool finished_ = false;
  std::exception_ptr error_;
  mutable bool error_seen_ = false;
};

}  // namespace tessera
