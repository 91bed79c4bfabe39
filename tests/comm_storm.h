// What the tests of messages within a host share: rings of any size, and storms of exchanges through them.
#pragma once
#include "comm/mpi_transport.h"
#include "tests/comm_cases.h"

namespace tessera::comm_cases {

HostChannel::Options small_rings(std::int64_t capacity, std::int64_t longest);
Communicator with_options(const HostChannel::Options& options);
const MpiTransport& transport_of(const Communicator& comm);
const HostChannel& channel_of(const Communicator& comm);

// Whether processes of this host may open each other's memory at all: where it is locked (a seccomp filter, a
// /proc that hides processes) MPI must carry everything, and the cases look at that.
bool host_lets_share();

// Exchanges of several groups, up to `under_way` of them started and not waited for; which one is waited for
// next is another one on every rank. Lengths lie around `limit`, too.
void storm(const Communicator& comm, std::int64_t limit, int exchanges, std::size_t under_way);

}  // namespace tessera::comm_cases
