#include "emulated/streams.h"

#include "emulated/mutation.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <memory>
#include <mutex>
#include <random>
#include <string_view>
#include <vector>

namespace tessera::emulated {

using Clock = std::chrono::steady_clock;

// How often it was recorded, and how far the streams have come.
struct EventState {
  std::uint64_t recorded = 0;
  std::uint64_t reached = 0;
  Clock::time_point when;  // of the latter
};
struct Event {
  std::shared_ptr<EventState> state = std::make_shared<EventState>();
};

namespace {

struct Item {
  Task run;
  // Not before this event has reached that record.
  std::shared_ptr<EventState> event;
  std::uint64_t needs = 0;
};

}  // namespace

struct Stream {
  std::deque<Item> items;
  int device = current_device();
};

namespace {

class Device {
 public:
  Device() {
    const char* text = std::getenv("TESSERA_EMULATED_SEED");
    random_.seed(text == nullptr ? 1 : static_cast<unsigned>(std::strtoul(text, nullptr, 10)));
    if (mutated("skip-waits")) skip_ = 3;
  }

  std::recursive_mutex mutex;
  std::vector<std::unique_ptr<Stream>> streams;
  Counters counters;

  bool skips_wait() { return skip_ > 0 && ++waits_ % skip_ == 0; }

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
  std::int64_t waits_ = 0;
  bool running_ = false;
  bool polls_ = false;
};

const bool events_always_done = mutated("events-done");

void check_device(const Stream& stream) {
  if (stream.device == current_device()) return;
  std::fprintf(stderr, "emulated device: a thread of device %d gives work to a stream of device %d\n",
               current_device(), stream.device);
  std::abort();
}

Device& device() {
  static auto* instance = new Device;
  return *instance;
}

}  // namespace

bool mutated(std::string_view name) {
  const char* wanted = std::getenv("TESSERA_EMULATED_MUTATION");
  return wanted != nullptr && name == wanted;
}

bool is_instant() {
  static const bool instant = [] {
    const char* text = std::getenv("TESSERA_EMULATED_INSTANT");
    return text != nullptr && std::string_view(text) == "1";
  }();
  return instant;
}

int& current_device() {
  thread_local int device = 0;
  return device;
}

Counters& counters() { return device().counters; }

void touch_current_device() { counters().contexts |= std::uint64_t{1} << current_device(); }

Stream* make_stream() {
  const std::lock_guard lock(device().mutex);
  return device().streams.emplace_back(std::make_unique<Stream>()).get();
}

void drop_stream(Stream* stream) {
  run_until_idle(stream);
  const std::lock_guard lock(device().mutex);
  auto& all = device().streams;
  all.erase(std::find_if(all.begin(), all.end(), [&](const auto& s) { return s.get() == stream; }));
}

void enqueue(Stream* stream, Task task) {
  check_device(*stream);
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  stream->items.push_back({std::move(task), nullptr, 0});
  device().drift();
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

Event* make_event() { return new Event; }
void drop_event(Event* event) { delete event; }

void record(Event* event, Stream* stream) {
  check_device(*stream);
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  const std::uint64_t number = ++event->state->recorded;
  stream->items.push_back({[state = event->state, number] {
                             state->reached = std::max(state->reached, number);
                             state->when = Clock::now();
                             return true;
                           },
                           nullptr, 0});
  device().drift();
}

void wait_for(Stream* stream, Event* event) {
  if (is_instant()) return;
  const std::lock_guard lock(device().mutex);
  if (device().skips_wait()) return;
  stream->items.push_back({nullptr, event->state, event->state->recorded});
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

double seconds_between(const Event* from, const Event* to) {
  return std::chrono::duration<double>(to->state->when - from->state->when).count();
}

}  // namespace tessera::emulated
