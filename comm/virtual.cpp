#include "comm/virtual.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <thread>

#include "comm/group.h"
#include "comm/placing.h"
#include "comm/virtual_transport.h"

namespace tessera {

void VirtualHub::report_failure(int rank, const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (failed_.load(std::memory_order_relaxed)) return;
  failure_ = fmt::format("rank {} failed: {}", rank, message);
  failed_.store(true, std::memory_order_release);
}

std::string VirtualHub::failure() const {
  if (!failed_.load(std::memory_order_acquire)) return {};
  const std::lock_guard lock(mutex_);
  return failure_;
}

void VirtualTransport::post_send(const Message& m, Ticket* ticket) {
  auto envelope = std::make_shared<VirtualHub::Envelope>();
  envelope->data = m.data;
  envelope->bytes = m.bytes;
  sent_.push_back({ticket, m.peer, m.tag, envelope});
  VirtualHub::Mailbox& box = hub_->box(m.peer);
  const std::lock_guard lock(box.mutex);
  box.letters[{rank_, m.tag}].push_back(std::move(envelope));
  box.arrivals.fetch_add(1, std::memory_order_release);
}

void VirtualTransport::post_recv(const Message& m, Ticket* ticket) {
  awaited_.push_back({ticket, m});
  new_awaited_ = true;
}

bool VirtualTransport::take(VirtualHub::Mailbox& box, Awaited& awaited) {
  const Message& m = awaited.message;
  const auto found = box.letters.find({m.peer, m.tag});
  if (found == box.letters.end()) return false;
  VirtualHub::Envelope& envelope = *found->second.front();
  if (envelope.bytes == m.bytes && m.placing != nullptr) {
    m.placing->place(envelope.data);
  } else if (envelope.bytes == m.bytes) {
    std::memcpy(m.data, envelope.data, static_cast<std::size_t>(m.bytes));
  } else {
    awaited.ticket->error = fmt::format("{} bytes came, but {} were expected", envelope.bytes, m.bytes);
  }
  envelope.taken.store(true, std::memory_order_release);
  found->second.pop_front();
  if (found->second.empty()) box.letters.erase(found);
  awaited.ticket->complete();
  return true;
}

void VirtualTransport::poll() {
  std::erase_if(sent_, [](const Sent& sent) {
    if (!sent.envelope->taken.load(std::memory_order_acquire)) return false;
    sent.ticket->complete();
    return true;
  });
  VirtualHub::Mailbox& box = hub_->box(rank_);
  const std::uint64_t arrivals = box.arrivals.load(std::memory_order_acquire);
  if (awaited_.empty() || (arrivals == seen_arrivals_ && !new_awaited_)) return;
  seen_arrivals_ = arrivals;
  new_awaited_ = false;
  const std::lock_guard lock(box.mutex);
  // In order of posting: pieces of one message share their tag.
  std::erase_if(awaited_, [&](Awaited& awaited) { return take(box, awaited); });
}

void VirtualTransport::cancel(Ticket* ticket) {
  std::erase_if(awaited_, [&](const Awaited& awaited) { return awaited.ticket == ticket; });
  std::erase_if(sent_, [&](const Sent& sent) {
    if (sent.ticket != ticket) return false;
    VirtualHub::Mailbox& box = hub_->box(sent.peer);
    const std::lock_guard lock(box.mutex);
    const auto found = box.letters.find({rank_, sent.tag});
    if (found == box.letters.end()) return true;
    std::erase(found->second, sent.envelope);
    if (found->second.empty()) box.letters.erase(found);
    return true;
  });
}

// There are often far more virtual ranks than cores; sleeping lets those run that have something to do.
void VirtualTransport::idle(int idle_polls) {
  constexpr int kYields = 256;
  if (idle_polls < kYields) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  }
}

namespace {

class RecordingTransport : public Transport {
 public:
  RecordingTransport(int rank, int size) : rank_(rank), size_(size) {}
  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool records_only() const override { return true; }
  void post_send(const Message&, Ticket* ticket) override { ticket->complete(); }
  void post_recv(const Message&, Ticket* ticket) override { ticket->complete(); }
  void poll() override {}
  void cancel(Ticket*) override {}

 private:
  int rank_;
  int size_;
};

struct Outcome {
  std::exception_ptr error;
  bool follows = false;  // only because another rank failed
};

Outcome run_one(const std::shared_ptr<VirtualHub>& hub, int rank,
                const std::function<void(Communicator)>& body) {
  set_rank_label({rank, hub->size()});
  try {
    const Communicator world(make_world_group(std::make_unique<VirtualTransport>(hub, rank)));
    body(world);
    rethrow_lost_error(required(world.group()).endpoint());
    hub->set_ended(rank);
    return {};
  } catch (const PeerFailed&) {
    return {std::current_exception(), true};
  } catch (const Error& e) {
    hub->report_failure(rank, e.message());
    return {std::current_exception(), false};
  } catch (const std::exception& e) {
    hub->report_failure(rank, e.what());
    return {std::current_exception(), false};
  } catch (...) {
    hub->report_failure(rank, "unknown exception");
    return {std::current_exception(), false};
  }
}

}  // namespace

std::unique_ptr<Transport> make_recording_transport(int rank, int size) {
  return std::make_unique<RecordingTransport>(rank, size);
}

void run_virtual_ranks(int ranks, const std::function<void(Communicator)>& body) {
  TS_CHECK(ranks >= 1, "run_virtual_ranks", "{} ranks were asked for, at least 1 is needed", ranks);
  const auto hub = std::make_shared<VirtualHub>(ranks);
  std::vector<Outcome> outcomes(static_cast<std::size_t>(ranks));
  {
    std::vector<std::jthread> threads;
    threads.reserve(outcomes.size());
    for (int rank = 0; rank < ranks; ++rank) {
      threads.emplace_back(
          [&, rank] { outcomes[static_cast<std::size_t>(rank)] = run_one(hub, rank, body); });
    }
  }
  for (const bool follows : {false, true}) {
    for (const Outcome& outcome : outcomes) {
      if (outcome.error && outcome.follows == follows) std::rethrow_exception(outcome.error);
    }
  }
}

Communicator recording_communicator(int rank, int size) {
  TS_CHECK(size >= 1 && rank >= 0 && rank < size, "recording_communicator", "rank {} of {} does not exist",
           rank, size);
  return Communicator(make_world_group(make_recording_transport(rank, size)));
}

}  // namespace tessera
