#pragma once

namespace tessera::cuda {

// Makes NCCL the way between devices (comm/device_link.h).
void register_nccl();

}  // namespace tessera::cuda
