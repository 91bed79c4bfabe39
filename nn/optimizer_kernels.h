// The kernels of optimizer steps, one row of function pointers each (see runtime/kernel.h). None waits for a
// device: sums and factors are F64 arrays of one element where the tensors are.
#pragma once
#include "ops/cpu/adamw.h"
#include "runtime/kernel.h"

namespace tessera::kernels {

extern Kernel<void(const cpu::AdamWArgs&)> adamw;
extern Kernel<void(const cpu::SgdArgs&)> sgd;
extern Kernel<void(std::span<const Array> arrays, const Array& out)> sum_of_squares;
extern Kernel<void(std::span<const Array> arrays, const Array& factor)> scale_all;
// `norm` holds a sum of squares and becomes its root; factor: max_norm / norm where the norm is larger, else
// 1; 1 too where the norm is not finite.
extern Kernel<void(const Array& norm, const Array& factor, double max_norm)> clip_factor;

}  // namespace tessera::kernels
