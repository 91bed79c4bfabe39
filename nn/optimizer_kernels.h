// The kernels of optimizer steps, one row of function pointers each (see runtime/kernel.h).
#pragma once
#include "ops/cpu/adamw.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::AdamWArgs&)> adamw;
extern Kernel<void(const cpu::SgdArgs&)> sgd;
// The sum goes to *out, in host memory.
extern Kernel<void(std::span<const Array> arrays, double* out)> sum_of_squares;
extern Kernel<void(std::span<const Array> arrays, double factor)> scale_all;

}  // namespace tessera::kernels
