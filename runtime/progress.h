// A hook that long CPU kernels and the autograd engine call between tiles and nodes, and who waits for a
// device while it waits, so that messages in flight move meanwhile (MPI moves nothing by itself). Layers
// above install what it does.
#pragma once
#include <utility>

namespace tessera {

using ProgressFunction = void (*)();
// Per thread; nullptr removes it. Cheap when nothing is installed.
void set_progress_function(ProgressFunction f);
ProgressFunction progress_function();
inline void poll_progress() {
  if (ProgressFunction f = progress_function()) f();
}

namespace detail {
inline constinit thread_local bool in_message_step = false;
}

// While one lives, this thread is in a step of a message, which some poll may have come to. Its own polls
// move nothing. It must not wait for a device: whoever polls could not go on when what he waits for has come,
// and the device may be waiting for him by way of other ranks.
class MessageStep {
 public:
  MessageStep() : before_(std::exchange(detail::in_message_step, true)) {}
  ~MessageStep() { detail::in_message_step = before_; }
  MessageStep(const MessageStep&) = delete;
  MessageStep& operator=(const MessageStep&) = delete;

 private:
  bool before_;
};
inline bool in_message_step() { return detail::in_message_step; }

}  // namespace tessera
