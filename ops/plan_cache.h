// A file in which the plans that a device's library makes (cuDNN, for convolutions) are kept from one run to
// the next: those that it holds are read before the first plan is needed, new ones are added to it. Ranks may
// share a file. Plans of another version of the library or another kind of device are made anew, and so are
// those whose line in the file is damaged.
#pragma once
#include <string>

#include "comm/communicator.h"

namespace tessera {

// Before the first plan; refused later. Environment: TESSERA_CUDNN_PLANS.
void set_plan_cache(const std::string& path);
// Empty: plans are not kept. From this call on it stays as it is.
std::string plan_cache();
// Collective, where a program has chosen the device: all ranks refuse where one of them cannot read or write
// its file, or it holds something else. Makes the file if there is none. Later, and in programs that do not
// call this, such a file costs a warning, and plans are not kept.
void check_plan_cache(const Communicator& world);

}  // namespace tessera
