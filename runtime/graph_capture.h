// What the library's layers know of a graph that is captured (graph.h): who holds state on the host that a
// step changes says here how a replay changes it.
#pragma once
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "runtime/array.h"
#include "runtime/graph.h"

namespace tessera {

// A device's part. `end` answers the executable graph.
struct GraphBackend {
  void (*begin)() = nullptr;
  void* (*end)() = nullptr;
  void (*give_up)() = nullptr;  // never throws
  void (*launch)(void* executable) = nullptr;
  void (*drop)(void* executable) = nullptr;  // never throws
};
void set_graph_backend(Device device, GraphBackend backend);

class GraphCapture {
 public:
  GraphCapture() = default;
  ~GraphCapture();
  GraphCapture(const GraphCapture&) = delete;
  GraphCapture& operator=(const GraphCapture&) = delete;

  // The capture that this thread is in; null outside of one.
  static GraphCapture* current();

  // Memory of the device that is written before replays: nothing that is captured uses it for another
  // purpose.
  Array input(const Dims& sizes, DType dtype) const;
  // Before every replay, and before any state is changed. May refuse.
  void check_replay(std::function<void()> f) { checks_.push_back(std::move(f)); }
  // Then, before the launch, in the order of the calls. May copy to the device.
  void before_replay(std::function<void()> f) { before_.push_back(std::move(f)); }
  void after_replay(std::function<void()> f) { after_.push_back(std::move(f)); }
  // When the capture ends, well or not: takes back what the captured calls did to the host's state. Never
  // throws. The last one first.
  void when_ended(std::function<void()> f) { ended_.push_back(std::move(f)); }
  // Goes when the capture has ended, well or not.
  void hold_until_ended(std::shared_ptr<void> held) { held_.push_back(std::move(held)); }
  // Lives as long as the graph.
  void keep(std::shared_ptr<void> held) { kept_.push_back(std::move(held)); }

 private:
  friend class CudaGraph;
  void begin(const GraphPool& pool);
  void end();
  void replay();
  void leave() noexcept;

  enum class State : std::uint8_t { Empty, Capturing, Captured };
  State state_ = State::Empty;
  std::thread::id thread_;
  GraphPool pool_;
  void* executable_ = nullptr;
  std::vector<std::function<void()>> checks_;
  std::vector<std::function<void()>> before_;
  std::vector<std::function<void()>> after_;
  std::vector<std::function<void()>> ended_;
  std::vector<std::shared_ptr<void>> held_;
  std::vector<std::shared_ptr<void>> kept_;
};

namespace detail {
inline constinit thread_local const char* current_op = nullptr;
}

// Names what this thread works on, while it lives, for refusals in a capture (string literals only). The
// outermost name counts.
class OpScope {
 public:
  explicit OpScope(const char* op) : before_(detail::current_op) {
    if (before_ == nullptr) detail::current_op = op;
  }
  ~OpScope() { detail::current_op = before_; }
  OpScope(const OpScope&) = delete;
  OpScope& operator=(const OpScope&) = delete;

 private:
  const char* before_;
};

// In a capture: refuses (kind Unsupported) in the name of the operation that is worked on, else of `op`.
// `what` is what would have to be done, `instead` what is allowed.
void refuse_in_capture(const char* op, const char* what, const char* instead);
// The same for waits of the host.
void refuse_wait_in_capture(const char* op);

}  // namespace tessera
