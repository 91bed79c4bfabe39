#include <cuda_runtime_api.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <deque>
#include <exception>
#include <mutex>
#include <set>
#include <thread>

#include "comm/cuda/nccl_link.h"

#include "comm/cuda/nccl_calls.h"
#include "comm/device_link.h"
#include "comm/work_state.h"
#include "runtime/cuda/host_watch.h"
#include "runtime/graph_capture.h"
#include "runtime/log.h"
#include "runtime/seconds.h"

namespace tessera::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// What is left to others when this rank throws, and to a stream whose communicator was aborted.
constexpr double kLastSeconds = 2.0;

// A work in the link's stream.
struct Flight {
  Call call;
  std::vector<int> peers;
  Event end;
  std::size_t captured = 0;  // of a replay: how many works the graph holds
};

std::vector<int> peers_of(const std::vector<Phase>& phases) {
  std::set<int> peers;
  for (const Phase& phase : phases) {
    for (const Transfer& t : phase.recvs) peers.insert(t.peer);
    for (const Transfer& t : phase.sends) peers.insert(t.peer);
  }
  return {peers.begin(), peers.end()};
}

std::string described(const Flight& flight) {
  std::string text = fmt::format("{} with rank{}", flight.call.op, flight.peers.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < flight.peers.size(); ++i)
    text += fmt::format("{} {}", i == 0 ? "" : ",", flight.peers[i]);
  text += fmt::format(" (called at {}:{})", flight.call.site.file_name(), flight.call.site.line());
  if (flight.captured > 0) text += fmt::format(", the first of {} calls in a CUDA graph", flight.captured);
  return text;
}

class NcclLink;

// All links of this process: who waits for the device on the host looks at them.
class Links {
 public:
  void add(NcclLink* link);
  void remove(NcclLink* link);
  void look(double seconds);
  bool idle();
  void poll() noexcept;
  // Guards the links' lists of works, too: any thread that waits looks at them.
  std::recursive_mutex& mutex() { return mutex_; }
  // A work is over on the device.
  void note_progress() { progress_ = Clock::now(); }
  double seconds_since_progress() const { return seconds_since(progress_); }

 private:
  std::recursive_mutex mutex_;
  std::vector<NcclLink*> links_;
  std::atomic<Clock::time_point> progress_{};
};

Links& links() {
  static auto* instance = new Links;
  return *instance;
}

class NcclLink final : public DeviceLink {
 public:
  NcclLink(Group& group, ncclComm_t comm) : group_(group), comm_(comm), stream_(make_stream()) {
    links().add(this);
  }
  ~NcclLink() override;

  std::unique_ptr<LinkedWork> start(const std::vector<Phase>& phases, const Call& call) override;
  // Refuses with what the communicator failed of, in the name of `flight`.
  void check(const Flight& flight);
  // For host waits: refuses when one of the works under way has failed, or none has been over for `seconds`
  // and these are more than the deadline: a host may be ahead of its device by many works.
  void look(double seconds);
  bool idle();
  // Of works that are over. Failures are left to whoever waits for the work.
  void take_note() noexcept;

 private:
  class Posting;
  void add(std::shared_ptr<Flight> flight);
  void capture(const Flight& flight, GraphCapture& graph);
  void post(const Phase& phase, const Flight& flight);
  void leave(const std::shared_ptr<Flight>& flight) noexcept;
  [[noreturn]] void refuse(const Flight& flight, const std::string& why);
  void break_off() noexcept;
  bool busy() const noexcept;
  template <class InVain>
  bool drained(InVain in_vain) noexcept;
  void forget_finished();
  std::string unfinished() const;

  Group& group_;
  ncclComm_t comm_;  // null after a failure
  StreamHandle stream_;
  std::string failure_;
  std::deque<std::shared_ptr<Flight>> flights_;
  std::thread::id poster_;
  // While a graph is captured: what stands for its replays.
  const GraphCapture* capture_ = nullptr;
  std::weak_ptr<Flight> captured_;
};

class NcclWork final : public LinkedWork {
 public:
  NcclWork(NcclLink& link, std::shared_ptr<Flight> flight) : link_(link), flight_(std::move(flight)) {}
  bool done() override {
    link_.check(*flight_);
    if (GraphCapture::current() == nullptr) return flight_->end.done();
    flight_->end.hold(current_stream());  // nothing runs in a capture: done is what comes before what follows
    return true;
  }
  void hold() override {
    link_.check(*flight_);
    flight_->end.hold(current_stream());
  }

 private:
  NcclLink& link_;  // of the group, which the work's owner keeps
  std::shared_ptr<Flight> flight_;
};

// While one lives the communicator is this thread's alone: who looks on elsewhere may not abort it.
class NcclLink::Posting {
 public:
  Posting(NcclLink& link, const Flight& flight) : link_(link) {
    const std::lock_guard lock(links().mutex());
    link.check(flight);
    link.forget_finished();
    link.poster_ = std::this_thread::get_id();
  }
  ~Posting() {
    const std::lock_guard lock(links().mutex());
    link_.poster_ = {};
  }
  Posting(const Posting&) = delete;
  Posting& operator=(const Posting&) = delete;

 private:
  NcclLink& link_;
};

void NcclLink::add(std::shared_ptr<Flight> flight) {
  const std::lock_guard lock(links().mutex());
  flights_.push_back(std::move(flight));
}

std::unique_ptr<LinkedWork> NcclLink::start(const std::vector<Phase>& phases, const Call& call) {
  auto flight = std::make_shared<Flight>(Flight{call, peers_of(phases), {}, 0});
  const Posting posting(*this, *flight);
  Event begin;
  begin.record(current_stream());
  begin.hold(stream_);
  try {
    for (const Phase& phase : phases) {
      post(phase, *flight);
      if (!phase.finish) continue;
      const StreamScope scope(stream_);
      phase.finish();
    }
  } catch (...) {
    leave(flight);
    throw;
  }
  flight->end.record(stream_);
  if (GraphCapture* graph = GraphCapture::current()) {
    capture(*flight, *graph);
  } else {
    add(flight);
  }
  return std::make_unique<NcclWork>(*this, std::move(flight));
}

// A local step was refused when its messages were posted already. Whatever the caller does with their memory,
// or whoever gets it next, comes after them.
void NcclLink::leave(const std::shared_ptr<Flight>& flight) noexcept {
  if (comm_ == nullptr) return;  // broken off
  try {
    flight->end.record(stream_);
    flight->end.hold(current_stream());
    if (GraphCapture::current() == nullptr) add(flight);
  } catch (const std::exception& e) {  // the device is gone
    log_error("{}", e.what());
  }
}

// One flight for a whole replay. The graph keeps the group, and with it this link.
void NcclLink::capture(const Flight& flight, GraphCapture& graph) {
  const std::shared_ptr<Flight> known = captured_.lock();
  if (known && capture_ == &graph) {
    ++known->captured;
    std::vector<int> peers;
    std::set_union(known->peers.begin(), known->peers.end(), flight.peers.begin(), flight.peers.end(),
                   std::back_inserter(peers));
    known->peers = std::move(peers);
    return;
  }
  const auto whole = std::make_shared<Flight>(Flight{flight.call, flight.peers, {}, 1});
  captured_ = whole;
  capture_ = &graph;
  graph.keep(group_.shared_from_this());
  graph.when_ended([this] { capture_ = nullptr; });
  graph.check_replay([this, whole] { check(*whole); });
  graph.after_replay([this, whole] {
    forget_finished();
    auto replay = std::make_shared<Flight>(Flight{whole->call, whole->peers, {}, whole->captured});
    replay->end.record(compute_stream());
    add(std::move(replay));
  });
}

void NcclLink::post(const Phase& phase, const Flight& flight) {
  if (phase.recvs.empty() && phase.sends.empty()) return;
  const std::string why = post_messages(comm_, phase, stream_, group_.endpoint().deadline);
  if (why.empty()) return;
  const std::string cause =
      failure_of(comm_);  // a communicator that has failed only says that it is not used well
  refuse(flight, cause.empty() ? why : cause);
}

void NcclLink::check(const Flight& flight) {
  const std::lock_guard lock(links().mutex());
  if (comm_ == nullptr) refuse(flight, failure_);
  const std::string why = failure_of(comm_);
  if (!why.empty()) refuse(flight, why);
}

void NcclLink::refuse(const Flight& flight, const std::string& why) {
  const std::lock_guard lock(links().mutex());
  if (failure_.empty()) failure_ = why;
  break_off();
  fail(ErrorKind::Comm, flight.call.op,
       fmt::format("{} in a group of {} ranks (this is rank {}): {}", described(flight), group_.size(),
                   group_.rank(), why),
       flight.call.site);
}

// Local steps of the works that were under way still run, on what has come so far: their memory may not go
// before that.
void NcclLink::break_off() noexcept {
  if (comm_ == nullptr) return;
  abort_nccl(comm_);
  comm_ = nullptr;
  group_.spoil();
  const Clock::time_point start = Clock::now();
  if (!drained([&] { return seconds_since(start) > kLastSeconds; }))
    log_error("NCCL was aborted, but its stream goes on");
  flights_.clear();
}

// Whether something is in the link's stream, or a graph with works of this link is under way, whose nodes are
// in no stream of the link.
bool NcclLink::busy() const noexcept {
  try {
    return !is_idle(stream_) || std::any_of(flights_.begin(), flights_.end(),
                                            [](const auto& f) { return f->captured > 0 && !f->end.done(); });
  } catch (const Error& e) {  // of the device: nothing runs any more
    log_error("{}", e.what());
    return false;
  }
}

// Waits until nothing is left, or `in_vain` says that nothing will come of it.
template <class InVain>
bool NcclLink::drained(InVain in_vain) noexcept {
  for (;;) {
    take_note();
    if (!busy()) return true;
    if (in_vain()) return false;
    Work::State::advance_all();  // what the others need of this host first
    links().poll();              // whose works may come before these
    usleep(20);
  }
}

void NcclLink::take_note() noexcept {
  try {
    forget_finished();
  } catch (const Error&) {  // whoever waits for the work will meet it
  }
}

void NcclLink::forget_finished() {
  const std::lock_guard lock(links().mutex());
  while (!flights_.empty() && flights_.front()->end.done()) {
    flights_.pop_front();
    links().note_progress();
  }
}

bool NcclLink::idle() {
  const std::lock_guard lock(links().mutex());
  forget_finished();
  return flights_.empty();
}

std::string NcclLink::unfinished() const {
  constexpr std::size_t kNamed = 5;
  std::string text;
  for (std::size_t i = 0; i < flights_.size() && i < kNamed; ++i)
    text += (i == 0 ? "" : ", ") + described(*flights_[i]);
  return flights_.size() > kNamed ? text + fmt::format(" and {} more", flights_.size() - kNamed) : text;
}

void NcclLink::look(double seconds) {
  const bool is_another_posting = poster_ != std::thread::id() && poster_ != std::this_thread::get_id();
  if (comm_ == nullptr || is_another_posting || idle()) return;
  const Flight first{flights_.front()->call, flights_.front()->peers, {}, flights_.front()->captured};
  check(first);
  if (seconds > group_.endpoint().deadline)
    refuse(first, fmt::format("the host has waited {:g} s for the device since the last work was over there, "
                              "unfinished: {}",
                              group_.endpoint().deadline, unfinished()));
}

NcclLink::~NcclLink() {
  links().remove(this);
  if (comm_ != nullptr) {
    const double deadline = group_.endpoint().deadline;
    const bool unwinds = std::uncaught_exceptions() > 0;
    const Clock::time_point start = Clock::now();
    const auto in_vain = [&] {  // as in `look`
      const double seconds = seconds_since(start);
      return unwinds ? seconds > std::min(kLastSeconds, deadline)
                     : std::min(seconds, links().seconds_since_progress()) > deadline;
    };
    if (drained(in_vain)) {
      end_nccl(comm_, kLastSeconds);
    } else {
      log_error("a group of {} ranks ends (this is rank {}) with works unfinished on the device: {}",
                group_.size(), group_.rank(), unfinished());
      break_off();
    }
  }
  drop_stream(stream_);
}

constexpr HostWatch kLinkWatch{[](double seconds) { links().look(seconds); }, [] { return links().idle(); }};

void Links::add(NcclLink* link) {
  const std::lock_guard lock(mutex_);
  links_.push_back(link);
  watch_host_waits(&kLinkWatch);
}

void Links::remove(NcclLink* link) {
  const std::lock_guard lock(mutex_);
  links_.erase(std::remove(links_.begin(), links_.end(), link), links_.end());
  if (links_.empty()) watch_host_waits(nullptr);
}

void Links::look(double seconds) {
  const std::lock_guard lock(mutex_);
  poll();
  const double still = std::min(seconds, seconds_since_progress());
  for (NcclLink* link : links_) link->look(still);
}

bool Links::idle() {
  const std::lock_guard lock(mutex_);
  return std::all_of(links_.begin(), links_.end(), [](NcclLink* link) { return link->idle(); });
}

void Links::poll() noexcept {
  const std::lock_guard lock(mutex_);
  for (NcclLink* link : links_) link->take_note();
}

}  // namespace

std::unique_ptr<DeviceLink> make_nccl_link(Group& group, const Call& call) {
  return std::make_unique<NcclLink>(group, make_nccl(group, call));
}
void poll_nccl_links() { links().poll(); }

}  // namespace tessera::cuda
