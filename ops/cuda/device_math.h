// The functions of one number that the CPU's kernels use (ops/cpu/simd/), in the device's own namespace.
#pragma once
#ifndef TESSERA_ISA_NAMESPACE
#define TESSERA_ISA_NAMESPACE isa_cuda
#endif
#include "ops/cpu/simd/pair_loss_functions.h"
#include "ops/cpu/simd/pointwise_functions.h"

namespace tessera::cuda {
namespace math = cpu::isa_cuda;
}  // namespace tessera::cuda
