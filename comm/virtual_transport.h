// Messages between threads of one process. The receiver copies straight from the sender's buffer; a send is
// done when that has happened (as a large MPI message would be), so programs that need buffering show it
// here.
#pragma once
#include <atomic>
#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "comm/transport.h"

namespace tessera {

// What all virtual ranks of one run share.
class VirtualHub {
 public:
  struct Envelope {
    const void* data = nullptr;
    std::int64_t bytes = 0;
    std::atomic<bool> taken{false};
  };
  struct Mailbox {
    std::mutex mutex;
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<Envelope>>> letters;  // by (sender, tag)
    std::atomic<std::uint64_t> arrivals{0};
  };

  explicit VirtualHub(int ranks)
      : boxes_(static_cast<std::size_t>(ranks)), ended_(static_cast<std::size_t>(ranks)) {}
  int size() const { return static_cast<int>(boxes_.size()); }
  Mailbox& box(int rank) { return boxes_[static_cast<std::size_t>(rank)]; }
  // Only the first failure is kept.
  void report_failure(int rank, const std::string& message);
  std::string failure() const;
  void set_ended(int rank) {
    ended_[static_cast<std::size_t>(rank)].store(true, std::memory_order_release);
    some_ended_.store(true, std::memory_order_release);
  }
  bool some_have_ended() const { return some_ended_.load(std::memory_order_acquire); }
  bool has_ended(int rank) const {
    return ended_[static_cast<std::size_t>(rank)].load(std::memory_order_acquire);
  }

 private:
  std::vector<Mailbox> boxes_;
  std::vector<std::atomic<bool>> ended_;
  std::atomic<bool> some_ended_{false};
  std::atomic<bool> failed_{false};
  mutable std::mutex mutex_;
  std::string failure_;
};

class VirtualTransport : public Transport {
 public:
  VirtualTransport(std::shared_ptr<VirtualHub> hub, int rank) : hub_(std::move(hub)), rank_(rank) {}

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  void post_send(const Message& message, Ticket* ticket) override;
  void post_recv(const Message& message, Ticket* ticket) override;
  void poll() override;
  void cancel(Ticket* ticket) override;
  std::string poison() const override { return hub_->failure(); }
  // What it sent lies in mailboxes by then.
  std::optional<RankEnd> end_of(int rank) override {
    if (!hub_->has_ended(rank)) return std::nullopt;
    return RankEnd{0, std::numeric_limits<double>::infinity()};
  }
  bool knows_of_ends() const override { return hub_->some_have_ended(); }
  void idle(int idle_polls) override;

 private:
  struct Sent {
    Ticket* ticket = nullptr;
    int peer = 0;
    int tag = 0;
    std::shared_ptr<VirtualHub::Envelope> envelope;
  };
  struct Awaited {
    Ticket* ticket = nullptr;
    Message message;
  };
  bool take(VirtualHub::Mailbox& box, Awaited& awaited);

  std::shared_ptr<VirtualHub> hub_;
  int rank_ = 0;
  std::uint64_t seen_arrivals_ = 0;
  bool new_awaited_ = false;
  std::vector<Sent> sent_;
  std::vector<Awaited> awaited_;
};

}  // namespace tessera
