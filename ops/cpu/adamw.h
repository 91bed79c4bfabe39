// Optimizer steps over many tensors at once: one pass over the memory, no temporaries.
#pragma once
#include <span>

#include "runtime/array.h"

namespace tessera::cpu {

// AdamW with decoupled decay (Loshchilov and Hutter 2019), in PyTorch's order of operations:
//   p -= lr wd p;  m = b1 m + (1 - b1) g;  v = b2 v + (1 - b2) g^2
//   p -= lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)
// The four spans run in parallel: equal sizes, f32 or f64, dense in the same memory order (equal strides).
struct AdamWArgs {
  std::span<const Array> params;
  std::span<const Array> grads;
  std::span<const Array> exp_avg;
  std::span<const Array> exp_avg_sq;
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double eps = 1e-8;
  double weight_decay = 0.0;
  std::int64_t step = 1;    // t, counted from 1
  double grad_scale = 1.0;  // g counts times this (clipping)
  // Where defined, F64 {lr, step, grad_scale} on the tensors' device, in place of those above. The CPU's
  // kernel has the numbers above only.
  Array scalars = {};
};
void adamw_step(const AdamWArgs& args);

// SGD: g += wd p; buf = momentum buf + (1 - dampening) g (first step: buf = g); p -= lr (buf, or with
// Nesterov g + momentum buf).
struct SgdArgs {
  std::span<const Array> params;
  std::span<const Array> grads;
  std::span<const Array> momentum_buffers;  // empty when momentum is 0
  double lr = 1e-2;
  double momentum = 0.0;
  double dampening = 0.0;
  double weight_decay = 0.0;
  bool nesterov = false;
  bool first_step = false;
  double grad_scale = 1.0;
  Array scalars = {};  // as above
};
void sgd_step(const SgdArgs& args);
// What every backend refuses: types other than f32 and f64, tensors that are not dense, roles that do not
// fit.
void check_flat(const char* op, const Array& a);
void check_adamw(const AdamWArgs& args);
void check_sgd(const SgdArgs& args);

// Sum of the squares of all elements, in double, the same for any number of threads.
double sum_of_squares(std::span<const Array> arrays);
// x *= factor, for every array (gradient clipping).
void scale_all(std::span<const Array> arrays, double factor);

}  // namespace tessera::cpu
