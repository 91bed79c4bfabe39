// Trace: what ran when, as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   TraceScope scope("all_reduce", "comm", bytes);
//
// Off, a scope costs one load. On, it takes two clock readings and one entry in a buffer of its thread; the
// file is written by trace_stop. Every process writes its own: rank 0 to the path given, rank r to "path"
// with ".rank<r>" before its extension ("trace.json", "trace.rank1.json"). Virtual ranks are threads of one
// process and share one file. Events carry the rank as process id and a thread number; times are microseconds
// of the host's monotonic clock, so files of ranks on one host can be put together: each is a JSON array of
// events under "traceEvents".
#pragma once
#include <atomic>
#include <cstdint>
#include <string>

namespace tessera {

// Starts recording and forgets what an earlier trace held. Refuses (kind Io) a path that cannot be written.
// The rank label must be set before.
void trace_start(const std::string& path);
// Ends recording and writes the file; does nothing when no trace runs. Scopes still open are left out.
void trace_stop();

namespace detail {
extern std::atomic<bool> trace_on;
std::int64_t trace_now();  // nanoseconds
struct TraceEvent {
  const char* name;
  const char* category;
  std::int64_t start;
  std::int64_t end;
  std::int64_t bytes;
};
void trace_add(const TraceEvent& event);
}  // namespace detail

inline bool trace_running() { return detail::trace_on.load(std::memory_order_relaxed); }

// One complete event from construction to destruction. Names must outlive the trace (string literals).
// `bytes` is shown with the event unless negative.
class TraceScope {
 public:
  explicit TraceScope(const char* name, const char* category = "op", std::int64_t bytes = -1)
      : event_{name, category, trace_running() ? detail::trace_now() : -1, 0, bytes} {}
  ~TraceScope() {
    if (event_.start >= 0) [[unlikely]]
      finish();
  }
  TraceScope(const TraceScope&) = delete;
  TraceScope& operator=(const TraceScope&) = delete;
  void set_bytes(std::int64_t bytes) { event_.bytes = bytes; }

 private:
  void finish();
  detail::TraceEvent event_;
};

}  // namespace tessera
