// Waits of the host while streams may wait for other ranks: they poll, and somebody looks on.
#pragma once
#include "runtime/cuda/api.h"

namespace tessera::cuda {

// While one is set, host waits poll instead of blocking in the driver.
struct HostWatch {
  // Throws where the wait is in vain; `seconds` is how long it has lasted.
  void (*look)(double seconds) = nullptr;
  // Whether nothing is left in streams of the watcher's own.
  bool (*idle)() = nullptr;
};
void watch_host_waits(HostWatch watch);
// Whether nothing is left in the stream.
bool is_idle(StreamHandle stream);
// The host waits until nothing is left in any stream; counted.
void synchronize_all();

}  // namespace tessera::cuda
