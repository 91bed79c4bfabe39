#include "runtime/trace.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <mutex>
#include <set>
#include <string_view>
#include <vector>

#include "runtime/error.h"
#include "runtime/log.h"

namespace tessera {

namespace detail {
std::atomic<bool> trace_on{false};
std::int64_t trace_now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}
}  // namespace detail

namespace {

using detail::TraceEvent;

// Enough for hours of training steps; beyond it events are counted and dropped rather than eating the memory.
constexpr std::size_t kMaxEvents = std::size_t{1} << 21;

struct RankedEvent {
  TraceEvent event;
  int rank;  // of the thread when it finished: a thread may serve several virtual ranks in turn
};

// The events of one thread. The mutex is contended only while the file is written.
struct Buffer {
  std::mutex mutex;
  std::vector<RankedEvent> events;
  std::int64_t dropped = 0;
  int thread = 0;
};

struct TraceState {
  std::mutex mutex;
  std::vector<std::shared_ptr<Buffer>> buffers;  // outlive their threads
  std::string path;
  int threads = 0;
};
TraceState& state() {
  static auto* instance = new TraceState;
  return *instance;
}

Buffer& buffer_of_thread() {
  thread_local const std::shared_ptr<Buffer> mine = [] {
    auto buffer = std::make_shared<Buffer>();
    TraceState& s = state();
    std::lock_guard lock(s.mutex);
    buffer->thread = s.threads++;
    s.buffers.push_back(buffer);
    return buffer;
  }();
  return *mine;
}

std::string path_of_rank(const std::string& path, int rank) {
  if (rank == 0) return path;
  const auto dot = path.rfind('.');
  const auto slash = path.rfind('/');
  const bool extension =
      dot != std::string::npos && (slash == std::string::npos || dot > slash + 1) && dot > 0;
  const std::string suffix = fmt::format(".rank{}", rank);
  return extension ? path.substr(0, dot) + suffix + path.substr(dot) : path + suffix;
}

std::string escaped(const char* text) {
  std::string out;
  for (const char* c = text; *c != '\0'; ++c) {
    if (*c == '"' || *c == '\\') out += '\\';
    if (static_cast<unsigned char>(*c) < 0x20)
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(*c));
    else
      out += *c;
  }
  return out;
}

void append_event(std::string& text, const RankedEvent& e, int thread) {
  auto out = std::back_inserter(text);
  const auto start = static_cast<double>(e.event.start) * 1e-3;
  const auto length = static_cast<double>(e.event.end - e.event.start) * 1e-3;
  fmt::format_to(out, R"(,
{{"name":"{}","cat":"{}","ph":"X","ts":{:.3f},"dur":{:.3f},"pid":{},"tid":{})",
                 escaped(e.event.name), escaped(e.event.category), start, length, e.rank, thread);
  if (e.event.bytes >= 0) fmt::format_to(out, R"(,"args":{{"bytes":{}}})", e.event.bytes);
  text += '}';
}

// Takes the events out of all buffers, as JSON.
std::string drain(TraceState& s) {
  std::string events;
  std::set<int> ranks{rank_label().rank};
  std::int64_t dropped = 0;
  for (const auto& buffer : s.buffers) {
    std::lock_guard lock(buffer->mutex);
    for (const RankedEvent& e : buffer->events) {
      append_event(events, e, buffer->thread);
      ranks.insert(e.rank);
    }
    dropped += buffer->dropped;
    buffer->events = {};
    buffer->dropped = 0;
  }
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[";
  std::string_view separator = "\n";
  for (int rank : ranks) {
    text += fmt::format(R"({}{{"name":"process_name","ph":"M","pid":{},"args":{{"name":"rank {}"}}}})",
                        separator, rank, rank);
    separator = ",\n";
  }
  if (dropped > 0) log_warn("trace: {} events beyond {} per thread were left out", dropped, kMaxEvents);
  return text + events + "\n]}\n";
}

}  // namespace

void detail::trace_add(const TraceEvent& event) {
  Buffer& buffer = buffer_of_thread();
  std::lock_guard lock(buffer.mutex);
  if (buffer.events.size() < kMaxEvents) {
    buffer.events.push_back({event, rank_label().rank});
  } else {
    ++buffer.dropped;
  }
}

void TraceScope::finish() {
  if (!trace_running()) return;
  event_.end = detail::trace_now();
  detail::trace_add(event_);
}

void trace_start(const std::string& path) {
  TraceState& s = state();
  std::lock_guard lock(s.mutex);
  const std::string own = path_of_rank(path, rank_label().rank);
  std::FILE* file = std::fopen(own.c_str(), "w");
  if (file == nullptr) TS_FAIL(Io, "trace_start", "the trace file {} cannot be written", own);
  std::fclose(file);
  s.path = own;
  for (const auto& buffer : s.buffers) {
    std::lock_guard inner(buffer->mutex);
    buffer->events.clear();
    buffer->dropped = 0;
  }
  detail::trace_on = true;
}

void trace_stop() {
  if (!detail::trace_on.exchange(false)) return;
  TraceState& s = state();
  std::lock_guard lock(s.mutex);
  const std::string text = drain(s);
  std::FILE* file = std::fopen(s.path.c_str(), "w");
  const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
  const bool closed = file != nullptr && std::fclose(file) == 0;
  if (!written || !closed) TS_FAIL(Io, "trace_stop", "the trace file {} could not be written", s.path);
}

}  // namespace tessera
