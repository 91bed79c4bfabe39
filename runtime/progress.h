// A hook that long CPU kernels and the autograd engine call between tiles and nodes, and who waits for a
// device while it waits, so that messages in flight move meanwhile (MPI moves nothing by itself). Layers
// above install what it does.
#pragma once
#include <cstdint>

namespace tessera {

// Who calls. What the hook does may wait for a device itself, and be called again from there: then it goes on
// with the rest. Called from a kernel of its own it does nothing, since such kernels hold memory of their
// thread's that the next one would write over.
enum class PollFrom : std::uint8_t { Computation, DeviceWait };

using ProgressFunction = void (*)(PollFrom);
// Per thread; nullptr removes it. Cheap when nothing is installed.
void set_progress_function(ProgressFunction f);
ProgressFunction progress_function();
inline void poll_progress(PollFrom from = PollFrom::Computation) {
  if (ProgressFunction f = progress_function()) f(from);
}

}  // namespace tessera
