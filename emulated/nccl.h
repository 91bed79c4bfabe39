// NCCL of the emulated device: its messages go over MPI, late, as the streams run (streams.h).
//
// Beside each message goes a note of what it is (number among the messages of this pair of ranks, bytes;
// which message of whatever communicator the pair had before it). A receive that meets another message than
// it was called for, or one that comes in another order of all communicators, ends the job and says so, and
// so does a message that nobody takes or sends within TESSERA_EMULATED_PATIENCE seconds (120 unless said
// otherwise). A communicator that is told not to block is begun and finalized in the background, and so are
// the messages of a group launched: it is in progress until it has been asked a few times, and takes nothing
// until then.
#pragma once
#include <vector>

namespace tessera::emulated {

// Faults, for tests. From now on every communicator of this process that is used ...
enum class NcclFault {
  None,
  Fails,        // ... reports an error of another rank, and moves nothing
  Stalls,       // ... moves nothing, and says nothing
  NeverBegins,  // ... is never begun by this rank
  NeverPosts,   // ... never comes to the messages that it is given, and stays in progress
  Slow          // ... takes a tenth of a second for each group of messages
};
void set_nccl_fault(NcclFault fault);

// One call of ncclSend or ncclRecv.
struct NcclMessage {
  int ranks = 0;  // of the communicator
  int peer = 0;
  long long bytes = 0;
  bool send = false;
  bool operator==(const NcclMessage&) const = default;
};

// What was moved, for tests.
struct NcclCounters {
  long long communicators = 0;
  long long groups = 0;
  long long sends = 0;
  long long sent_bytes = 0;
  // In the order of the calls, also of those that a graph repeats; kept while asked for.
  bool keep_messages = false;
  std::vector<NcclMessage> messages;
};
NcclCounters& nccl_counters();

}  // namespace tessera::emulated
