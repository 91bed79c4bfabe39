// What the CUDA backend's host code has in common: streams, events, refusals.
//
// One process drives one device. All kernels of the library go to one compute stream, so memory that goes
// back to the allocator may be handed out again at once: what uses it next comes later in the same stream.
// Whatever runs on another stream (messages) is tied to the compute stream by events at both ends and keeps
// its memory alive until then.
#pragma once
#include <cstdint>

struct CUstream_st;
struct CUevent_st;

namespace tessera::cuda {

using StreamHandle = CUstream_st*;
using EventHandle = CUevent_st*;

// Refuses (kind Backend) where `code`, a cudaError_t, is not success, with the name of the call and CUDA's
// text. CUDA keeps it for whoever asks for the last error, which is the next launch's check: it is taken
// back, so that who catches the refusal can go on.
void check(int code, const char* call);
// Whether `code` of a query says that something is over; refuses where it is neither that nor "not ready".
bool is_over(int code, const char* query);
// An error that nobody can be told of.
void ignore(int code) noexcept;
// The same for errors of kernel launches since the last check.
void check_launch(const char* kernel);

// The device of this process is the `local_rank`-th of its host, modulo their number. Opens nothing; refuses
// another one than is in use already.
void choose_device(int local_rank);
// CUDA knows a current device per thread. What needs one (memory, streams, events, plans of libraries) calls
// this first, so a process that never uses a device opens no context, and no thread takes device 0 by chance.
void use_device();
bool device_in_use();

// The stream of this process's kernels.
StreamHandle compute_stream();
// Where kernels that this thread launches go: the compute stream unless a StreamScope says otherwise.
StreamHandle current_stream();
class StreamScope {
 public:
  explicit StreamScope(StreamHandle stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  StreamHandle before_;
};
// A new stream that waits for no other.
StreamHandle make_stream();
void drop_stream(StreamHandle stream) noexcept;

// The host waits; counted.
void synchronize(StreamHandle stream);

// A point in a stream. Events come from a pool and go back to it.
class Event {
 public:
  Event() = default;
  ~Event();
  Event(Event&& other) noexcept : handle_(other.handle_) { other.handle_ = nullptr; }
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(StreamHandle stream);
  // `stream` goes on after the recorded point. Nothing to do where nothing was recorded.
  void hold(StreamHandle stream) const;
  bool done() const;
  // The host waits; counted.
  void wait() const;

 private:
  EventHandle handle_ = nullptr;
};

// How often the host waited for the device in this process, for tests and reports.
std::int64_t host_waits();

}  // namespace tessera::cuda
