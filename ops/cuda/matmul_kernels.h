// Matrix products of any type and strides by a plain kernel: one thread an element.
#pragma once
#include "runtime/cuda/copy_kernels.h"

namespace tessera::cuda {

// c [m, n] = a [m, k] b [k, n] (+ bias [n]) (+ c) for every element of a batch.
struct MatmulElements {
  DType dtype = DType::F32;  // of all; not bool
  std::int64_t m = 0, n = 0, k = 0;
  std::int64_t c_row = 0, c_col = 0, a_row = 0, a_col = 0, b_row = 0, b_col = 0, bias_stride = 0;
  void* c = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  const void* bias = nullptr;  // or null
  bool accumulate = false;
  Walk<3> batch;  // c, a, b
};
// Floating sums are kept in double, integers wrap around.
void multiply_elements(const MatmulElements& args, StreamHandle stream);

}  // namespace tessera::cuda
