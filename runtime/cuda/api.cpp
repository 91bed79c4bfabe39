#include "runtime/cuda/api.h"

#include <cuda_runtime_api.h>

#include <sched.h>

#include <atomic>
#include <chrono>
#include <mutex>
#include <utility>
#include <vector>

#include "runtime/cuda/host_watch.h"
#include "runtime/cuda/launch_shape.h"
#include "runtime/cuda/watch.h"
#include "runtime/environment.h"
#include "runtime/error.h"
#include "runtime/graph_capture.h"
#include "runtime/progress.h"
#include "runtime/seconds.h"

namespace tessera::cuda {
namespace {

std::atomic<std::int64_t> waits{0};
std::atomic<int> chosen_local_rank{0};
std::atomic<bool> in_use{false};
thread_local bool thread_has_device = false;
thread_local StreamHandle scoped_stream = nullptr;

int device_of(int local_rank) {
  int count = 0;
  check(cudaGetDeviceCount(&count), "cudaGetDeviceCount");
  return local_rank % count;
}

class EventPool {
 public:
  EventHandle take() {
    {
      const std::lock_guard lock(mutex_);
      if (!free_.empty()) {
        const EventHandle event = free_.back();
        free_.pop_back();
        return event;
      }
    }
    use_device();
    EventHandle event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming), "cudaEventCreateWithFlags");
    return event;
  }
  void give(EventHandle event) {
    const std::lock_guard lock(mutex_);
    free_.push_back(event);
  }

 private:
  std::mutex mutex_;
  std::vector<EventHandle> free_;
};

// Never destroyed: the driver may be gone before static variables are.
EventPool& event_pool() {
  static auto* pool = new EventPool;
  return *pool;
}

// Another thread may set it while this one waits.
std::atomic<const HostWatch*> host_watch{nullptr};

// Whether the driver may not keep this thread: somebody looks on, or messages of the host's are under way,
// which the device may be waiting for by way of other ranks.
bool must_poll() {
  return host_watch.load(std::memory_order_acquire) != nullptr || progress_function() != nullptr;
}

template <class Done>
void poll_until(Done done) {
  using Clock = std::chrono::steady_clock;
  constexpr int kPollsPerLook = 64;
  const Clock::time_point start = Clock::now();
  for (int polls = 1; !done(); polls = polls % kPollsPerLook + 1) {
    if (polls < kPollsPerLook) continue;
    {
      const StreamScope home(nullptr);  // what moves on is not this caller's
      if (const HostWatch* watch = host_watch.load(std::memory_order_acquire))
        watch->look(seconds_since(start));
      poll_progress();
    }
    sched_yield();
  }
}

// Of what is in the stream now: polls may add to it, and whoever waits is not kept by that.
Event end_of(StreamHandle stream) {
  Event end;
  end.record(stream);
  return end;
}

bool watcher_is_idle() {
  const HostWatch* watch = host_watch.load(std::memory_order_acquire);
  return watch == nullptr || watch->idle();
}

}  // namespace

void watch_host_waits(const HostWatch* watch) { host_watch.store(watch, std::memory_order_release); }

void check(int code, const char* call) {
  if (code == cudaSuccess) [[likely]]
    return;
  cudaGetLastError();
  TS_FAIL(Backend, "cuda", "{} failed: {}", call, cudaGetErrorString(static_cast<cudaError_t>(code)));
}

bool is_over(int code, const char* query) {
  if (code == cudaErrorNotReady) {
    cudaGetLastError();  // it is no error and should leave none behind; that costs nothing to make sure of
    return false;
  }
  check(code, query);
  return true;
}

void ignore(int code) noexcept {
  if (code != cudaSuccess) cudaGetLastError();
}

void refuse_blocks(std::int64_t blocks) {
  TS_FAIL(Backend, "cuda",
          "a kernel would need {} blocks of threads, at most {} are allowed: give it fewer elements", blocks,
          kLargestGrid);
}

void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

void choose_device(int local_rank) {
  const int before = chosen_local_rank.load();
  if (in_use.load())
    TS_CHECK(device_of(local_rank) == device_of(before), "select_device",
             "device {} was given, but this process uses device {} already", device_of(local_rank),
             device_of(before));
  chosen_local_rank.store(local_rank);
}

void use_device() {
  if (thread_has_device) [[likely]]
    return;
  check_settings();
  check(cudaSetDevice(device_of(chosen_local_rank.load())), "cudaSetDevice");
  thread_has_device = true;
  in_use.store(true);
}

bool device_in_use() { return in_use.load(); }

StreamHandle make_stream() {
  use_device();
  StreamHandle stream = nullptr;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
  return stream;
}

void drop_stream(StreamHandle stream) noexcept { ignore(cudaStreamDestroy(stream)); }

StreamHandle compute_stream() {
  use_device();
  static const StreamHandle stream = make_stream();
  return stream;
}

StreamHandle current_stream() {
  if (scoped_stream == nullptr) return compute_stream();
  use_device();
  return scoped_stream;
}

StreamScope::StreamScope(StreamHandle stream) : before_(scoped_stream) { scoped_stream = stream; }
StreamScope::~StreamScope() { scoped_stream = before_; }

bool is_idle(StreamHandle stream) { return is_over(cudaStreamQuery(stream), "cudaStreamQuery"); }

void synchronize_all() {
  if (!device_in_use()) return;
  refuse_wait_in_capture("synchronize");
  waits.fetch_add(1, std::memory_order_relaxed);
  if (must_poll()) {
    const Event end = end_of(compute_stream());
    poll_until([&] { return end.done() && watcher_is_idle(); });
  }
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  check_watches();
}

void synchronize(StreamHandle stream) {
  refuse_wait_in_capture("synchronize");
  waits.fetch_add(1, std::memory_order_relaxed);
  if (must_poll()) {
    const Event end = end_of(stream);
    poll_until([&] { return end.done(); });
  } else {
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }
  check_watches();
}

Event::~Event() {
  if (handle_ != nullptr) event_pool().give(handle_);
}

Event& Event::operator=(Event&& other) noexcept {
  std::swap(handle_, other.handle_);
  return *this;
}

void Event::record(StreamHandle stream) {
  if (handle_ == nullptr) handle_ = event_pool().take();
  check(cudaEventRecord(handle_, stream), "cudaEventRecord");
}

void Event::hold(StreamHandle stream) const {
  if (handle_ != nullptr) check(cudaStreamWaitEvent(stream, handle_, 0), "cudaStreamWaitEvent");
}

bool Event::done() const { return handle_ == nullptr || is_over(cudaEventQuery(handle_), "cudaEventQuery"); }

void Event::wait() const {
  if (handle_ == nullptr) return;
  refuse_wait_in_capture("synchronize");
  waits.fetch_add(1, std::memory_order_relaxed);
  if (must_poll()) return poll_until([&] { return done(); });
  check(cudaEventSynchronize(handle_), "cudaEventSynchronize");
}

std::int64_t host_waits() { return waits.load(std::memory_order_relaxed); }

}  // namespace tessera::cuda
