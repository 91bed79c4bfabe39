#pragma once
#include "ops/reduce/moments_merge.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::MergeMomentsArgs&)> merge_moments;

}  // namespace tessera::kernels
