// One trial, carried out: split the tensors, run the steps, run backward, gather and compare.
#pragma once
#include "mesh/device_mesh.h"
#include "verify/trial.h"

namespace tessera::verify {

// What this rank sent and kept, and what it found wrong (empty: nothing).
struct TrialOutcome {
  std::string fault;
  bool refused = false;  // the fault is an error that was thrown, not a wrong number
  std::int64_t messages_forward = 0;
  std::int64_t messages_backward = 0;
  std::int64_t bytes_forward = 0;
  std::int64_t bytes_backward = 0;
  std::int64_t peak_live_bytes = 0;  // above what was live before the trial
};

struct TrialSetup {
  const Case* test = nullptr;
  const Trial* trial = nullptr;
  DeviceMesh mesh;
  DType dtype = DType::F32;  // F32 or F64: what floating tensors are converted to
  Device device = Device::Cpu;
};

// Collective over the mesh. Catches everything that the library throws: that is the trial's fault then, and
// ranks may have parted; the caller must bring them together again. The limit on bytes is not checked here,
// since it is over all ranks.
TrialOutcome run_trial(const TrialSetup& setup);

}  // namespace tessera::verify
