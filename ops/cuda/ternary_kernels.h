// Element-wise kernels of three operands on the device: the arithmetic of ops/cpu/ternary.h.
#pragma once
#include "ops/cpu/ternary_ops.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

struct TernaryElements {
  Walk<4> walk;  // out, a, b, c
  Elements out;
  Elements a;
  Elements b;
  Elements c;  // null: `none` in its place
  double none = 0;
  cpu::TernaryOp op = cpu::TernaryOp::Quotient;
  double alpha = 1.0;
};
void ternary_elements(const TernaryElements& args, StreamHandle stream);

}  // namespace tessera::cuda
