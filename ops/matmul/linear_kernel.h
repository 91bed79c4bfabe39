#pragma once
#include "ops/cpu/linear.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::LinearArgs&)> linear;

}  // namespace tessera::kernels
