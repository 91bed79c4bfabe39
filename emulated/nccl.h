// NCCL of the emulated device: its messages go over MPI, late, as the streams run (streams.h).
//
// Beside each message goes a note of what it is (number among the messages of this pair of ranks, bytes). A
// receive that meets another message than it was called for ends the job and says so, and so does a message
// that nobody takes or sends within TESSERA_EMULATED_PATIENCE seconds (120 unless said otherwise). A
// communicator is begun in the background, as NCCL does it when it is told not to block.
#pragma once

namespace tessera::emulated {

// Faults, for tests. From now on every communicator of this process that is used ...
enum class NcclFault {
  None,
  Fails,  // ... reports an error of another rank, and moves nothing
  Stalls  // ... moves nothing, and says nothing
};
void set_nccl_fault(NcclFault fault);

// What was moved, for tests.
struct NcclCounters {
  long long communicators = 0;
  long long groups = 0;
  long long sends = 0;
  long long sent_bytes = 0;
};
NcclCounters& nccl_counters();

}  // namespace tessera::emulated
