// Refusals of exchange lists that cannot be right.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "comm/group.h"

namespace tessera {

void check_exchange(const Group& group, const Call& call, std::span<const SendBuffer> sends,
                    std::span<const RecvBuffer> recvs);

}  // namespace tessera
