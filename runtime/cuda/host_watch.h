// Waits of the host while streams may wait for other ranks: they poll, and somebody looks on.
#pragma once
#include "runtime/cuda/api.h"

namespace tessera::cuda {

// While one is set, host waits poll instead of blocking in the driver; so they do while messages that the
// host moves are under way (runtime/progress.h).
struct HostWatch {
  // Throws where the wait is in vain; `seconds` is how long it has lasted.
  void (*look)(double seconds) = nullptr;
  // Whether nothing is left in streams of the watcher's own.
  bool (*idle)() = nullptr;
};
// Null: none any more. It lives as long as the process.
void watch_host_waits(const HostWatch* watch);
// Whether nothing is left in the stream.
bool is_idle(StreamHandle stream);
// The host waits until nothing is left in any stream; counted.
void synchronize_all();

}  // namespace tessera::cuda
