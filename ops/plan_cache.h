// A file in which the plans that a device's library makes (cuDNN, for convolutions) are kept from one run to
// the next: those that it holds are read before the first plan is needed, new ones are added to it. Ranks may
// share a file. Plans of another version of the library or another kind of device are made anew.
#pragma once
#include <string>

namespace tessera {

// Before the first plan; refused later. Environment: TESSERA_CUDNN_PLANS.
void set_plan_cache(const std::string& path);
// Empty: plans are not kept. From this call on it stays as it is.
std::string plan_cache();

}  // namespace tessera
