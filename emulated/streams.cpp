#include "emulated/streams.h"

#include "emulated/memory.h"
#include "emulated/mutation.h"
#include "emulated/settings.h"
#include "emulated/stream_state.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <sstream>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

namespace tessera::emulated {

namespace {

// Of "skip-waits=N".
std::optional<std::int64_t> number_of(std::string_view name) {
  constexpr std::string_view kOne = "skip-waits=";
  std::int64_t number = 0;
  if (name.substr(0, kOne.size()) != kOne) return {};
  const auto [end, error] = std::from_chars(name.data() + kOne.size(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < 0) return {};
  return number;
}

// The number of skip-waits=N. A fault that is misspelt would be none, and what it is to turn red would stay
// green.
std::optional<std::int64_t> check_faults() {
  std::optional<std::int64_t> number;
  static constexpr std::array<std::string_view, 8> kKnown{"events-done",     "reuse-early", "skip-waits",
                                                          "no-poison",       "one-stream",  "wait-at-once",
                                                          "refuse-products", "stride"};
  const char* wanted = std::getenv("TESSERA_EMULATED_MUTATION");
  std::stringstream names(wanted == nullptr ? "" : wanted);
  for (std::string name; std::getline(names, name, ',');)
    if (const auto given = number_of(name)) {
      number = given;
    } else if (std::find(kKnown.begin(), kKnown.end(), name) == kKnown.end()) {
      std::fprintf(stderr, "TESSERA_EMULATED_MUTATION: '%s' is no fault of emulated/mutation.h\n",
                   name.c_str());
      std::_Exit(1);
    }
  return number;
}

void say_waits();

class Device {
 public:
  Device() {
    skip_one_ = check_faults();
    random_.seed(static_cast<unsigned>(seed_setting()));
    if (mutated("skip-waits")) skip_ = 3;
    if (skip_one_ == 0) std::atexit(say_waits);
    reuse_early_ = mutated("reuse-early");
  }

  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Stream>> streams;
  std::unordered_set<const Event*> events;
  Counters counters;
  Journal journal;

  void note(const Stream* stream, Kind kind, std::uint64_t record = 0) {
    if (journal.keep) journal.queued.push_back({stream, kind, record});
  }
  std::uint64_t next_record() { return ++records_; }

  bool skips_wait(const Event& event) {
    if (skip_ > 0) return ++waits_ % skip_ == 0;
    const bool over = !event.capture && event.state->reached >= event.state->recorded;
    return skip_one_ && !over && ++waits_ == *skip_one_;
  }
  std::int64_t waits() const { return waits_; }

  // The compute stream, made before all others, goes on without them.
  bool reuses_early(const Stream* stream, const Event& event) const {
    return reuse_early_ && !event.capture && stream == streams.front().get();
  }
  unsigned draw() { return static_cast<unsigned>(random_()); }

  // The head of one queue that may go on. False: none could.
  bool step() {
    if (running_) return false;
    const std::size_t n = streams.size();
    if (n == 0) return false;
    const std::size_t first = random_() % n;
    for (std::size_t i = 0; i < n; ++i)
      if (step(*streams[(first + i) % n])) return true;
    return false;
  }

  // Now and then a little of what waits.
  void drift() {
    if (random_() % 4 != 0) return;
    for (unsigned i = random_() % 4; i > 0; --i) step();
  }

  template <class Done>
  void run_until(Done done) {
    constexpr int kPatience = 200'000'000;  // a message of another rank may take a while
    for (int idle = 0; !done();) {
      if (step()) {
        idle = 0;
      } else if (!polls_ || ++idle > kPatience) {
        std::fprintf(
            stderr,
            "emulated device: the host waits for work that can never run (an event nobody records)\n");
        std::abort();
      }
    }
  }

 private:
  bool step(Stream& stream) {
    if (stream.items.empty()) return false;
    Item& head = stream.items.front();
    if (head.event && head.event->reached < head.needs) return false;
    if (head.run) {
      running_ = true;
      const bool done = head.run();
      running_ = false;
      if (!done) {
        polls_ = true;
        return false;
      }
    }
    stream.items.pop_front();
    polls_ = false;
    return true;
  }

  std::mt19937 random_;
  int skip_ = 0;
  std::optional<std::int64_t> skip_one_;
  bool reuse_early_ = false;
  std::int64_t waits_ = 0;
  std::uint64_t records_ = 0;
  bool running_ = false;
  bool polls_ = false;
};

const bool events_always_done = mutated("events-done");

Device& device() {
  static auto* instance = new Device;
  return *instance;
}

void say_waits() {
  std::fprintf(stderr, "emulated device: %lld waits\n", static_cast<long long>(device().waits()));
}

void check_device(const Stream* stream) {
  check_in_use(stream);
  if (stream->device == current_device()) return;
  std::fprintf(stderr, "emulated device: a thread of device %d gives work to a stream of device %d\n",
               current_device(), stream->device);
  std::abort();
}

}  // namespace

void end_unknown(const char* what) {
  std::fprintf(stderr, "emulated device: %s is used that was destroyed or never made\n", what);
  std::abort();
}

void check_in_use(const Stream* stream) {
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  const auto& all = device().streams;
  if (std::none_of(all.begin(), all.end(), [&](const auto& s) { return s.get() == stream; }))
    end_unknown("a stream");
}
void check_in_use(const Event* event) {
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  if (device().events.count(event) == 0) end_unknown("an event");
}
int device_of(const Stream* stream) { return stream->device; }

bool mutated(std::string_view name) {
  const char* wanted = std::getenv("TESSERA_EMULATED_MUTATION");
  std::string_view rest = wanted == nullptr ? "" : wanted;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == name) return true;
    rest = comma == std::string_view::npos ? "" : rest.substr(comma + 1);
  }
  return false;
}

bool is_instant() { return settings().instant; }

int& current_device() {
  thread_local int device = 0;
  return device;
}

Counters& counters() { return device().counters; }
Journal& journal() { return device().journal; }

void touch_current_device() { counters().contexts |= std::uint64_t{1} << current_device(); }

Stream* make_stream() {
  static const bool one = mutated("one-stream");
  const std::lock_guard lock(device().mutex);
  if (one && !device().streams.empty()) return device().streams.front().get();
  return device().streams.emplace_back(std::make_unique<Stream>()).get();
}

void drop_stream(Stream* stream) {
  run_until_idle(stream);
  const std::lock_guard lock(device().mutex);
  auto& all = device().streams;
  if (stream == all.front().get() && mutated("one-stream")) return;  // that of others, too
  all.erase(std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.get() == stream; }));
}

void let_first_wait(Stream* stream) {
  Stream* first = nullptr;
  {
    const std::lock_guard lock(device().mutex);
    first = device().streams.front().get();
  }
  if (first == stream) return;
  Event event;
  if (record(&event, stream) == cudaSuccess) wait_for(first, &event);
}

std::recursive_mutex& streams_mutex() { return device().mutex; }
const std::vector<std::unique_ptr<Stream>>& all_streams() { return device().streams; }
unsigned draw_number() {
  const std::lock_guard lock(device().mutex);
  return device().draw();
}

void enqueue(Stream* stream, Task task, Kind kind) {
  check_device(stream);
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  if (stream->capture) return enqueue_made(stream, [task = std::move(task)] { return task; });
  device().note(stream, kind);
  stream->items.push_back({std::move(task), nullptr, 0});
  device().drift();
}

void enqueue_made(Stream* stream, TaskMaker make, Kind kind) {
  check_device(stream);
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  if (stream->capture) {
    Graph& graph = stream->capture->graph;
    graph.nodes.push_back({std::move(make), stream->tail});
    stream->tail = {graph.nodes.size() - 1};
    return;
  }
  device().note(stream, kind);
  stream->items.push_back({make(), nullptr, 0});
  device().drift();
}

void poison(void* p, std::size_t bytes, Stream* stream) {
  static const bool left_out = mutated("no-poison");
  if (is_instant() || left_out) return;
  const std::lock_guard lock(device().mutex);
  if (stream->capture) return;
  stream->items.push_back({[p, bytes] {
                             std::memset(reach(p), 0xFF, bytes);
                             return true;
                           },
                           nullptr, 0});
}

bool is_idle(Stream* stream) {
  if (is_instant()) return true;
  const std::lock_guard lock(device().mutex);
  device().drift();
  device().step();
  return stream->items.empty();
}

void run_until_idle(Stream* stream) {
  const std::lock_guard lock(device().mutex);
  const auto& all = device().streams;
  device().run_until([&] {
    return stream != nullptr
               ? stream->items.empty()
               : std::all_of(all.begin(), all.end(), [](const auto& s) { return s->items.empty(); });
  });
}

Event* make_event(bool timed) {
  auto* event = new Event;
  event->timed = timed;
  const std::lock_guard lock(device().mutex);
  device().events.insert(event);
  return event;
}
void drop_event(Event* event) {
  const std::lock_guard lock(device().mutex);
  device().events.erase(event);
  delete event;
}

cudaError_t record(Event* event, Stream* stream) {
  check_device(stream);
  if (is_instant()) return cudaSuccess;
  if (event->device != stream->device) return cudaErrorInvalidResourceHandle;
  const std::lock_guard lock(device().mutex);
  record_in_capture(*event, *stream);
  if (stream->capture) return cudaSuccess;
  const std::uint64_t number = ++event->state->recorded;
  device().note(stream, Kind::Record, event->state->last = device().next_record());
  stream->items.push_back({[state = event->state, number] {
                             state->reached = std::max(state->reached, number);
                             state->when = std::chrono::steady_clock::now();
                             return true;
                           },
                           nullptr, 0});
  device().drift();
  return cudaSuccess;
}

cudaError_t wait_for(Stream* stream, Event* event) {
  if (is_instant()) return cudaSuccess;
  const std::lock_guard lock(device().mutex);
  if (device().skips_wait(*event) || device().reuses_early(stream, *event)) return cudaSuccess;
  if (stream->capture || event->capture) return wait_in_capture(*stream, *event);
  device().note(stream, Kind::Wait, event->state->last);
  stream->items.push_back({nullptr, event->state, event->state->recorded});
  return cudaSuccess;
}

bool is_done(Event* event) {
  if (is_instant()) return true;
  const std::lock_guard lock(device().mutex);
  device().drift();
  device().step();
  return events_always_done || event->state->reached >= event->state->recorded;
}

void run_until_done(Event* event) {
  const std::lock_guard lock(device().mutex);
  device().run_until([&] { return event->state->reached >= event->state->recorded; });
}

cudaError_t seconds_between(const Event* from, const Event* to, double& seconds) {
  if (is_instant()) return cudaSuccess;
  const std::lock_guard lock(device().mutex);
  for (const Event* event : {from, to})
    if (!event->timed || event->state->recorded == 0) return cudaErrorInvalidResourceHandle;
  for (const Event* event : {from, to})
    if (event->state->reached < event->state->recorded) return cudaErrorNotReady;
  seconds = std::chrono::duration<double>(to->state->when - from->state->when).count();
  return cudaSuccess;
}

}  // namespace tessera::emulated
