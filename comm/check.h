// The debug mode that compares calls before they communicate.
#pragma once
#include <span>

#include "comm/communicator.h"
#include "comm/group.h"

namespace tessera {

// What all ranks of a group must agree on in one call.
struct CallFacts {
  const Array* array = nullptr;
  bool any_rows = false;  // dim 0 may differ from rank to rank
  const ReduceOp* reduce = nullptr;
  int root = -1;
  std::span<const std::int64_t> counts = {};
};

// If the mode is on: gathers every rank's call, and if they differ, refuses on every rank with the same text.
void check_same_call(const std::shared_ptr<Group>& group, const Call& call, const CallFacts& facts);

}  // namespace tessera
