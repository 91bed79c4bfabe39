// Streams of the emulated device: queues that run late.
//
// Nothing runs when it is enqueued. Work runs when somebody waits for it, and a little at random whenever the
// interface is called (seed TESSERA_EMULATED_SEED), from whatever queue may go on: within a queue in order,
// between queues only events constrain. So where a wait is missing, the wrong order comes up and gives a
// wrong number. All of it runs on the threads that call, one at a time.
//
// TESSERA_EMULATED_INSTANT=1: every call returns at once. Copies are done there and then, kernels and what
// libraries are asked for are only accepted, and all events have happened: for measuring what the host does
// between two calls. Results mean nothing then.
#pragma once
#include <driver_types.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::emulated {

struct Stream;
struct Event;

bool is_instant();

// The device of the calling thread. A stream belongs to the one of the thread that made it; work from a
// thread of another device ends the process, and so does the use of a stream or an event that is none any
// more.
int& current_device();
int device_of(const Stream* stream);
void check_in_use(const Stream* stream);
void check_in_use(const Event* event);
// Whatever opens a context on it.
void touch_current_device();

// False: cannot go on yet (a message has not come); asked again later.
using Task = std::function<bool()>;
// Makes a task that runs once; a graph asks for one at every launch.
using TaskMaker = std::function<Task()>;

Stream* make_stream();
// Runs what is left in it.
void drop_stream(Stream* stream);
// The stream that was made first, the library's compute stream, waits for what is in `stream` now.
void let_first_wait(Stream* stream);
// Plan: one of cuDNN's. Messages: a group of NCCL's. Record and Wait: of events.
enum class Kind : std::uint8_t { Work, Plan, Messages, Record, Wait };
// Becomes a node where the stream is captured (capture.h). `task` keeps nothing from one run to the next.
void enqueue(Stream* stream, Task task, Kind kind = Kind::Work);
void enqueue_made(Stream* stream, TaskMaker make, Kind kind = Kind::Work);
// Fills memory with what is no number when the stream comes to it, unless it is captured. Runs nothing now:
// the caller may hold locks.
void poison(void* p, std::size_t bytes, Stream* stream);
// True when the queue is empty. Runs a little of what waits.
bool is_idle(Stream* stream);
// nullptr: all streams. Aborts where the queues can never empty: a wait for an event that nobody records.
void run_until_idle(Stream* stream);

// `timed`: made to measure time by.
Event* make_event(bool timed);
void drop_event(Event* event);
// Later waits on the event wait for what is in `stream` now. Refused where they are of two devices.
cudaError_t record(Event* event, Stream* stream);
cudaError_t wait_for(Stream* stream, Event* event);
bool is_done(Event* event);
void run_until_done(Event* event);
// Seconds from one point to a later one, by the clock of the machine that emulates; refused as CUDA does
// where one is not timed, was never recorded or has not come.
cudaError_t seconds_between(const Event* from, const Event* to, double& seconds);

// What was called, for tests: how often the host waited for the device, and so on.
struct Counters {
  std::int64_t host_waits = 0;
  std::int64_t kernels = 0;
  std::int64_t copies = 0;
  std::int64_t pageable_copies = 0;  // of them, for which a real driver may wait
  std::int64_t allocations = 0;
  std::int64_t pinned_allocations = 0;
  std::uint64_t contexts = 0;  // a bit for each device that has been used
  std::int64_t graph_launches = 0;
};
Counters& counters();

// What streams were given, in the order of the calls and outside captures; for tests, while it is kept.
struct Queued {
  const Stream* stream = nullptr;
  Kind kind = Kind::Work;
  std::uint64_t record = 0;  // the number of a Record, or of the one that a Wait is for (0: there was none)
};
struct Journal {
  bool keep = false;
  std::vector<Queued> queued;
};
Journal& journal();

}  // namespace tessera::emulated
