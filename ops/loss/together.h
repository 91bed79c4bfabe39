// Numbers of all ranks. Internal to ops/loss.
#pragma once
#include "ops/op.h"

namespace tessera {

// Every rank's `mine` [k] as [P, k], in the order of the group over `mask`; just [1, k] where the mask is
// empty. One small message. What only a rank that holds some of the data can know (a value out of range) goes
// to the others this way, so that all refuse together.
Array numbers_of_all(const ShardSpec* spec, unsigned mask, const Array& mine);

}  // namespace tessera
