// The kernels of pooling and of maps along dims (see runtime/kernel.h).
#pragma once
#include "ops/window/max_pool_kernels.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::MaxPoolArgs&)> max_pool;
extern Kernel<void(const cpu::ScatterMaxArgs&)> scatter_max;
extern Kernel<void(const cpu::ScatterMaxArgs&)> gather_max;
extern Kernel<void(const cpu::ApplyRowsArgs&)> apply_rows;
extern Kernel<void(const cpu::ApplyTwoRowsArgs&)> apply_two_rows;

}  // namespace tessera::kernels
