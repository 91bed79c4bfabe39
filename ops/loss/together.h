// Numbers of all ranks. Internal to ops/loss.
#pragma once
#include "ops/op.h"

namespace tessera {

// Every rank's `mine` [k] as [P, k], in the order of the group over `mask`; just [1, k] where the mask is
// empty. One small message.
Array numbers_of_all(const ShardSpec* spec, unsigned mask, const Array& mine);

// Whether what only a rank that holds some of the data can know (a value out of range) goes to the others
// before it is refused, although nothing else is sent: where calls are compared, so that all refuse together.
bool refuse_together(const ShardSpec* spec);
// Whether a fault found in the values (a target that is no class) is refused where it is found. Always on the
// CPU. A device would have to be waited for in every step, so there it is not, unless the communicator of the
// spec checks calls (null: unless TESSERA_CHECK_CALLS=1): the result is NaN instead, on every rank.
bool refuses_values(Device device, const ShardSpec* spec);
// [1] of faults [n] (f64, none below 0): 0, or NaN where one is above 0. What it is added to shows the fault.
Array nan_if_any(const Array& faults);

}  // namespace tessera
