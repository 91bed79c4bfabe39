// Streams of the emulated device: queues that run late.
//
// Nothing runs when it is enqueued. Work runs when somebody waits for it, and a little at random whenever the
// interface is called (seed TESSERA_EMULATED_SEED), from whatever queue may go on: within a queue in order,
// between queues only events constrain. So where a wait is missing, the wrong order comes up and gives a
// wrong number. All of it runs on the threads that call, one at a time.
#pragma once
#include <cstdint>
#include <functional>

namespace tessera::emulated {

struct Stream;
struct Event;

// False: cannot go on yet (a message has not come); asked again later.
using Task = std::function<bool()>;

Stream* make_stream();
// Runs what is left in it.
void drop_stream(Stream* stream);
void enqueue(Stream* stream, Task task);
// True when the queue is empty. Runs a little of what waits.
bool is_idle(Stream* stream);
// nullptr: all streams. Aborts where the queues can never empty: a wait for an event that nobody records.
void run_until_idle(Stream* stream);

Event* make_event();
void drop_event(Event* event);
// Later waits on the event wait for what is in `stream` now.
void record(Event* event, Stream* stream);
void wait_for(Stream* stream, Event* event);
bool is_done(Event* event);
void run_until_done(Event* event);

// What was called, for tests: how often the host waited for the device, and so on.
struct Counters {
  std::int64_t host_waits = 0;
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
  std::int64_t allocations = 0;
};
Counters& counters();

}  // namespace tessera::emulated
