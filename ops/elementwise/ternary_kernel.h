#pragma once
#include "ops/cpu/ternary.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::TernaryArgs&)> ternary;

}  // namespace tessera::kernels
