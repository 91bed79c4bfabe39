// NCCL's calls as the link needs them: none blocks, whatever is not over at once is polled for up to a
// deadline, and every failure is an Error (kind Comm) with NCCL's own text.
#pragma once
#include <nccl.h>

#include <string>

#include "comm/group.h"
#include "comm/phase.h"
#include "runtime/cuda/api.h"

namespace tessera::cuda {

// "" while all is well, else what went wrong in the background.
std::string failure_of(ncclComm_t comm);

// Collective over the group, which agrees by way of the host: one NCCL communicator of its ranks. Where it
// fails on one rank it is refused on all.
ncclComm_t make_nccl(Group& group, const Call& call);
// Messages of one phase at once, in the order in which the phase lists them. They are in the stream when it
// returns; the first ones to or from a rank may take until that rank comes here too. Answers "" or why not.
std::string post_messages(ncclComm_t comm, const Phase& phase, StreamHandle stream, double deadline);
void end_nccl(ncclComm_t comm, double deadline) noexcept;
// Ends what is under way too.
void abort_nccl(ncclComm_t comm) noexcept;

}  // namespace tessera::cuda
