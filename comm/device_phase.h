// A phase whose buffers are memory of a device, where the host posts its messages (no link, device_link.h).
// The host waits for nothing: whoever polls asks whether the device has come so far.
#pragma once
#include <memory>

#include "comm/phase.h"
#include "runtime/device.h"

namespace tessera {

class DevicePhase {
 public:
  DevicePhase() = default;
  virtual ~DevicePhase() = default;
  DevicePhase(const DevicePhase&) = delete;
  DevicePhase& operator=(const DevicePhase&) = delete;
  // Whether its messages may be posted.
  virtual bool ready() const = 0;
  // What is posted then.
  virtual const Phase& transfers() const = 0;
  // All have come: makes what is launched later see it.
  virtual void deliver() = 0;
  bool posted() const { return posted_; }
  void set_posted() { posted_ = true; }

 private:
  bool posted_ = false;
};

// For a transport that moves host memory: what is sent is copied to page-locked memory first, what came is
// copied to the device.
std::unique_ptr<DevicePhase> stage_phase(Device device, const Phase& phase);
// For one that takes addresses of the device (MPI that is CUDA-aware): it reads and writes there at once and
// knows no streams, so nothing is posted before all has run that was launched until now. That goes for
// receives too: what was launched may still use the memory that they write. `phase` outlives the answer.
std::unique_ptr<DevicePhase> hand_over_phase(Device device, const Phase& phase);

}  // namespace tessera
