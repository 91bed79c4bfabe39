// Optimizer steps on the device: one launch over many tensors, whose places travel in the kernel's
// parameters. So a captured launch needs no table in memory, and a step uploads nothing.
#pragma once
#include <cstdint>

#include "runtime/cuda/api.h"

namespace tessera::cuda {

constexpr int kTensorsOfLaunch = 64;
constexpr std::int64_t kElementsOfBlock = 4096;

// Tensors of one type, each cut into blocks of kElementsOfBlock elements. Operand k of tensor i lies at
// data[k][i].
template <int Operands>
struct TensorList {
  int count = 0;
  bool wide = false;  // f64, else f32
  void* data[Operands][kTensorsOfLaunch];
  std::int64_t numel[kTensorsOfLaunch];
  std::int32_t first_block[kTensorsOfLaunch + 1];
};

// What a step needs that does not change from step to step; the rest is `scalars`: f64 {lr, step,
// grad_scale}.
struct AdamWConstants {
  double beta1 = 0;
  double beta2 = 0;
  double eps = 0;
  double weight_decay = 0;
};
constexpr int kAdamWCoefficients = 9;
// coefficients: f64 [kAdamWCoefficients], from the scalars.
void adamw_coefficients(const AdamWConstants& constants, const void* scalars, void* coefficients,
                        StreamHandle stream);
// Operands: parameter, gradient, first and second moment.
void adamw_tensors(const TensorList<4>& tensors, const void* coefficients, StreamHandle stream);

struct SgdConstants {
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool buffers = false;
};
// Operands: parameter, gradient, momentum.
void sgd_tensors(const TensorList<3>& tensors, const SgdConstants& constants, const void* scalars,
                 StreamHandle stream);

// The sum of the squares of each block to sums[0, blocks).
void square_tensors(const TensorList<1>& tensors, double* sums, StreamHandle stream);
// out[0]: the sum of `count` numbers, always in the same order.
void sum_numbers(const double* numbers, std::int64_t count, double* out, StreamHandle stream);
void scale_tensors(const TensorList<1>& tensors, const double* factor, StreamHandle stream);
// norm[0] becomes the root of what it holds; factor[0]: see nn/optimizer_kernels.h.
void clip_by_norm(double* norm, double* factor, double max_norm, StreamHandle stream);

}  // namespace tessera::cuda
