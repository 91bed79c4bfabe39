// Communicators without MPI: P ranks as threads of one process, or one rank of P that only records.
#pragma once
#include <functional>

#include "comm/communicator.h"

namespace tessera {

// Runs `body(communicator)` on `ranks` threads, each with its own rank label, and returns when all are done.
// If a rank throws, the waits of the others end with an error naming it, and the first exception (lowest
// rank) is rethrown here. A wait for a rank that has returned is refused after some seconds.
void run_virtual_ranks(int ranks, const std::function<void(Communicator)>& body);

// Rank `rank` of `size`, alone: messages are recorded and dropped, receives complete at once and leave their
// buffers as they are (collectives likewise). For planning on the meta device.
Communicator recording_communicator(int rank, int size);

}  // namespace tessera
