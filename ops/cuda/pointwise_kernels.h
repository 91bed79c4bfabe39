// Element-wise kernels of the device: the arithmetic of ops/cpu/pointwise.h, one element a thread.
#pragma once
#include "ops/cpu/pointwise_ops.h"
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

struct UnaryElements {
  Walk<2> walk;  // out, x
  Elements out;
  Elements x;
  cpu::UnaryOp op = cpu::UnaryOp::Neg;
  double alpha = 1.0;
  double beta = 0.0;
};
struct BinaryElements {
  Walk<3> walk;  // out, a, b
  Elements out;
  Elements a;
  Elements b;
  cpu::BinaryOp op = cpu::BinaryOp::Add;
  double alpha = 1.0;
  double beta = 0.0;
};
struct WhereElements {
  Walk<4> walk;  // out, cond, a, b
  Elements out;
  Elements cond;
  Elements a;
  Elements b;
};

// False: the op is not defined for the type (integers and bool have few).
bool unary_elements(const UnaryElements& args, StreamHandle stream);
bool binary_elements(const BinaryElements& args, StreamHandle stream);
void where_elements(const WhereElements& args, StreamHandle stream);

}  // namespace tessera::cuda
