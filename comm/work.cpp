#include <algorithm>
#include <atomic>

#include "comm/rank_list.h"
#include "comm/work_listener.h"
#include "comm/work_state.h"
#include "runtime/graph_capture.h"
#include "runtime/progress.h"
#include "runtime/seconds.h"
#include "runtime/trace.h"

namespace tessera {

namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSecondsToFirstLook = 2.0;
constexpr int kPollsPerClock = 32;

std::atomic<WorkListener> listener{nullptr};

thread_local std::vector<Work::State*> active_works;
thread_local ProgressFunction outer_progress = nullptr;

void progress_hook() {
  Work::State::advance_all();
  if (outer_progress != nullptr) outer_progress();
}

void add_active(Work::State* state) {
  if (active_works.empty()) {
    outer_progress = progress_function();
    set_progress_function(&progress_hook);
  }
  active_works.push_back(state);
}

void remove_active(Work::State* state) {
  active_works.erase(std::remove(active_works.begin(), active_works.end(), state), active_works.end());
  if (active_works.empty() && progress_function() == &progress_hook) set_progress_function(outer_progress);
}

std::int64_t pieces(std::int64_t bytes, std::int64_t limit) { return (bytes + limit - 1) / limit; }

}  // namespace

void listen_to_works(WorkListener l) { listener.store(l); }

Work::State::State(std::shared_ptr<Group> group, const Call& call)
    : group_(std::move(group)),
      call_(call),
      sequence_(group_->next_sequence()),
      number_(++group_->endpoint().works_begun) {
  Clock::time_point& until = group_->endpoint().unwinding_until;
  if (until != Clock::time_point{} && std::uncaught_exceptions() == 0) until = {};  // that one was caught
}

Phase& Work::State::add_phase(int step) {
  phases_.emplace_back().step = step;
  return phases_.back();
}

void Work::State::start() {
  if (phases_.empty()) {
    finished_ = true;
    return;
  }
  captured_ = GraphCapture::current() != nullptr;
  DeviceLink* link = device_ == Device::Cpu ? nullptr : group_->device_link();
  if (const WorkListener heard = listener.load(std::memory_order_relaxed))
    heard({*group_, phases_, device_, link != nullptr});
  if (link == nullptr && device_ != Device::Cpu && has_transfers()) count_mpi_work();
  try {
    if (link != nullptr) return start_on_link(*link);
    post();
  } catch (...) {
    give_up(std::current_exception());
    return;
  }
  advance();
  if (!finished_) {
    active_ = true;
    add_active(this);
    if (!group_->endpoint().overlap) wait();
  }
}

bool Work::State::has_transfers() const {
  return std::any_of(phases_.begin(), phases_.end(),
                     [](const Phase& p) { return !p.recvs.empty() || !p.sends.empty(); });
}

// Refuses it in a capture: nothing has begun, the work is as good as done.
void Work::State::count_mpi_work() {
  if (GraphCapture::current() != nullptr) {
    finished_ = true;
    phases_.clear();
  }
  refuse_in_capture(call_.op, "messages go by MPI, which the host calls and no replay could,",
                    "allowed are messages between devices (NCCL, a device for every rank)");
  MpiWorks& works = group_->endpoint().mpi_works;
  ++(group_->hands_over() ? works.handed : works.staged);
}

// Its copies would be captured instead of made, and its events are of streams that are not captured. It goes
// on when the capture has ended.
bool Work::State::is_kept_from_capture() const {
  return device_ != Device::Cpu && !captured_ && GraphCapture::current() != nullptr;
}

void Work::State::refuse_in_later_capture() const {
  if (!is_kept_from_capture()) return;
  const std::string what = fmt::format("{}, called at {}:{} before the capture, would be waited for",
                                       call_.op, call_.site.file_name(), call_.site.line());
  refuse_in_capture(call_.op, what.c_str(), "wait for it before the capture or after it");
}

void Work::State::start_on_link(DeviceLink& link) {
  linked_ = link.start(phases_, call_);
  if (!group_->endpoint().overlap) wait();
}

// Its buffers are safe from what this thread launches from now on, so they may go.
void Work::State::hold_for_link() {
  try {
    linked_->hold();
    complete();
  } catch (...) {
    give_up(std::current_exception());
  }
}

void Work::State::poll_link() {
  try {
    if (linked_->done()) complete();
  } catch (...) {
    give_up(std::current_exception());
  }
}

// Both sides split a message in the same way, so its pieces need no numbers: they arrive in order.
void Work::State::post_pieces(const Message& whole, int peer, bool send) {
  const std::int64_t limit = group_->endpoint().message_limit;
  for (std::int64_t at = 0; at < whole.bytes; at += limit) {
    Ticket& ticket = tickets_[static_cast<std::size_t>(ticket_count_++)];
    ticket.pending = &pending_;
    ticket.peer = peer;
    ticket.send = send;
    ++pending_;
    const Message piece{whole.peer,
                        whole.tag,
                        static_cast<char*>(whole.data) + at,
                        std::min(limit, whole.bytes - at),
                        whole.bytes <= limit ? whole.placing : nullptr,
                        whole.in_pieces,
                        whole.at_once,
                        whole.on_device};
    if (send) {
      group_->transport().post_send(piece, &ticket);
    } else {
      group_->transport().post_recv(piece, &ticket);
    }
  }
}

void Work::State::post() {
  const Phase& phase = phases_[current_];
  if (device_ == Device::Cpu) {
    post_transfers(phase);
  } else {
    on_device_ = group_->hands_over() ? hand_over_phase(device_, phase) : stage_phase(device_, phase);
  }
}

void Work::State::post_transfers(const Phase& phase) {
  const std::int64_t limit = group_->endpoint().message_limit;
  std::int64_t count = 0;
  for (const Transfer& t : phase.recvs) count += pieces(t.bytes, limit);
  for (const Transfer& t : phase.sends) count += pieces(t.bytes, limit);
  tickets_ = count > 0 ? std::make_unique<Ticket[]>(static_cast<std::size_t>(count)) : nullptr;
  ticket_count_ = 0;
  const int tag = group_->tag(sequence_, phase.step);
  const bool handed = device_ != Device::Cpu && group_->hands_over();
  for (const Transfer& t : phase.recvs)
    post_pieces({group_->world_rank(t.peer), tag, t.data, t.bytes, t.placing.get(), false, false, handed},
                t.peer, false);
  for (const Transfer& t : phase.sends)
    post_pieces({group_->world_rank(t.peer), tag, t.data, t.bytes, nullptr, t.in_pieces, t.at_once, handed},
                t.peer, true);
}

void Work::State::advance() {
  if (is_kept_from_capture()) return;
  const MessageStep step;
  while (!finished_ && pending_ == 0) {
    try {
      if (on_device_ && !on_device_->posted()) {
        if (!on_device_->ready()) return;
        on_device_->set_posted();
        post_transfers(on_device_->transfers());
        continue;
      }
      check_tickets();
      if (on_device_) on_device_->deliver();
      if (phases_[current_].finish) phases_[current_].finish();
      if (++current_ == phases_.size()) {
        complete();
      } else {
        post();
      }
    } catch (...) {
      give_up(std::current_exception());
    }
  }
}

void Work::State::advance_all() {
  if (in_message_step()) return;  // whose kernels poll
  const MessageStep steps;
  if (active_works.size() == 1) {  // the usual case, in few steps: what waits is polling
    State* state = active_works.front();
    state->group_->transport().poll();
    state->advance();
    return;
  }
  const Transport* polled = nullptr;
  for (std::size_t i = 0; i < active_works.size(); ++i) {
    Transport& transport = active_works[i]->group().transport();
    if (&transport != polled) transport.poll();
    polled = &transport;
  }
  for (std::size_t i = 0; i < active_works.size();) {
    State* state = active_works[i];
    state->advance();
    if (i < active_works.size() && active_works[i] == state) ++i;
  }
}

void Work::State::complete() {
  finished_ = true;
  if (active_) remove_active(this);
  active_ = false;
  phases_.clear();
  on_device_.reset();
  linked_.reset();
  tickets_.reset();
  ticket_count_ = 0;
  kept_.clear();
}

void Work::State::give_up(std::exception_ptr error) {
  error_ = error;
  for (std::int64_t i = 0; i < ticket_count_; ++i) {
    Ticket& ticket = tickets_[static_cast<std::size_t>(i)];
    if (!ticket.done) group_->transport().cancel(&ticket);
  }
  pending_ = 0;
  group_->spoil();
  auto& graveyard = group_->endpoint().graveyard;
  graveyard.insert(graveyard.end(), kept_.begin(), kept_.end());
  if (on_device_) group_->endpoint().unfinished.push_back(std::move(on_device_));
  complete();
}

void Work::State::check() const {
  error_seen_ = true;
  if (!error_) return;
  excuse_others();
  std::rethrow_exception(error_);
}

bool Work::State::wait_until(double seconds) {
  Transport& transport = group_->transport();
  Clock::time_point start{};  // short waits are over before a clock is read
  PeerWatch watch{transport.knows_of_ends() ? 0 : kSecondsToFirstLook, -1};
  for (int polls = 1; !finished_; polls = polls == INT32_MAX ? kPollsPerClock : polls + 1) {
    advance_all();
    if (finished_) break;
    transport.idle(polls);
    if (polls % kPollsPerClock != 0) continue;
    poll_device_links();
    if (start == Clock::time_point{}) start = Clock::now();
    const double waited = seconds_since(start);
    const std::string poison = transport.poison();
    if (!poison.empty()) {
      give_up(std::make_exception_ptr(PeerFailed(ErrorKind::Comm, call_.op, poison, call_.site)));
    } else if (waited > seconds) {
      return false;
    } else {
      look_after_peers(waited, &watch);
    }
  }
  return true;
}

bool Work::State::poll() {
  if (!finished_) {
    refuse_in_later_capture();
    if (linked_) {
      poll_link();
    } else {
      advance_all();
    }
  }
  check();
  return finished_;
}

void Work::State::wait() {
  if (finished_) return check();
  const TraceScope trace("wait", "comm");
  const CommTimer timer(*group_);
  refuse_in_later_capture();
  if (linked_) hold_for_link();
  const double seconds = group_->endpoint().deadline;
  if (!finished_ && !wait_until(seconds)) refuse_deadline(seconds);
  check();
}

void Work::State::refuse_deadline(double seconds) {
  try {
    fail(ErrorKind::Comm, call_.op,
         fmt::format("waited {:g} s in a group of {} ranks (this is rank {}) {}, called at {}:{}", seconds,
                     group_->size(), group_->rank(), missing_peers(), call_.site.file_name(),
                     call_.site.line()),
         call_.site);
  } catch (...) {
    give_up(std::current_exception());
    error_seen_ = true;
    excuse_others();
    throw;
  }
}

std::string Work::State::missing_peers() const {
  if (on_device_ && !on_device_->posted()) return "for the device to do what comes before its messages";
  std::vector<int> from;
  std::vector<int> to;
  for (std::int64_t i = 0; i < ticket_count_; ++i) {
    const Ticket& ticket = tickets_[static_cast<std::size_t>(i)];
    if (!ticket.done) (ticket.send ? to : from).push_back(ticket.peer);
  }
  std::string text;
  if (!from.empty()) text = "for messages from " + rank_list(from);
  if (!from.empty() && !to.empty()) text += " and ";
  if (!to.empty()) text += "for " + rank_list(to) + " to take messages";
  return text;
}

void Work::State::check_tickets() const {
  for (std::int64_t i = 0; i < ticket_count_; ++i) {
    const Ticket& ticket = tickets_[static_cast<std::size_t>(i)];
    if (ticket.error.empty()) continue;
    std::string text =
        fmt::format("message {} rank {} failed: {}", ticket.send ? "to" : "from", ticket.peer, ticket.error);
    if (ticket.peer_gave_up) throw PeerFailed(ErrorKind::Comm, call_.op, std::move(text), call_.site);
    fail(ErrorKind::Comm, call_.op, std::move(text), call_.site);
  }
}

bool Work::done() {
  if (!state_) return true;
  if (!state_->finished()) {
    const CommTimer timer(state_->group());
    state_->poll();
  }
  return state_->poll();
}

void Work::wait() {
  if (state_) state_->wait();
}

void Work::keep(Array array) {
  if (state_ && !state_->finished()) state_->keep(std::move(array));
}

}  // namespace tessera
