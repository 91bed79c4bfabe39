// A phase whose buffers are memory of a device, for a transport that moves host memory: what is sent is
// copied to page-locked memory first, what came is copied to the device. The host waits for neither copy.
#pragma once
#include <memory>
#include <vector>

#include "comm/phase.h"
#include "runtime/device.h"

namespace tessera {

class StagedPhase {
 public:
  // Starts to copy what is sent.
  StagedPhase(Device device, const Phase& phase);
  // Whether it may be sent.
  bool ready() const;
  // The same transfers between buffers of the host.
  const Phase& on_host() const { return host_; }
  bool posted() const { return posted_; }
  void set_posted() { posted_ = true; }
  // Starts to copy what came.
  void deliver();

 private:
  std::vector<std::unique_ptr<Staging>> sends_;
  std::vector<std::unique_ptr<Staging>> recvs_;
  std::vector<char*> targets_;  // of recvs_
  Phase host_;
  bool posted_ = false;
};

}  // namespace tessera
