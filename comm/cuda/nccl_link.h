// The link between devices (comm/device_link.h) over NCCL: one communicator and one stream per group.
#pragma once
#include <memory>

#include "comm/device_link.h"

namespace tessera::cuda {

// Makes NCCL the way between devices, where each rank of a group has one of its own.
void register_nccl();

// Collective over the group, whose ranks drive different devices; refuses where NCCL does not begin before
// the deadline.
std::unique_ptr<DeviceLink> make_nccl_link(Group& group, const Call& call);
// Takes note of works that are over on the device, of all links of this process. Never throws.
void poll_nccl_links();

}  // namespace tessera::cuda
