// A matrix product as pointers and strides, after its batch dims have been folded.
#pragma once
#include "ops/cpu/loops.h"
#include "ops/cpu/matmul.h"

namespace tessera::cpu {

struct MatrixLayout {
  std::int64_t row = 0;
  std::int64_t col = 0;
  MatrixLayout transposed() const { return {col, row}; }
};

struct MatmulProblem {
  DType dtype = DType::F32;
  std::int64_t m = 0, n = 0, k = 0;
  MatrixLayout c, a, b;
  char* c_data = nullptr;
  const char* a_data = nullptr;
  const char* b_data = nullptr;
  const void* bias = nullptr;  // n contiguous elements, or null
  bool accumulate = false;
  StridedLoop batch;  // operands c, a, b; one element for a plain product

  double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) *
           static_cast<double>(batch.numel);
  }
};

// Refuses operands that do not fit together; for every device.
void check_matmul(const MatmulArgs& args);
// By oneDNN; false if it has no good implementation for these layouts on this machine. c.col must be 1.
bool matmul_onednn(const MatmulProblem& p);
// By our own loops, for any dtype but bf16, f16 and bool, and any layout.
void matmul_own(const MatmulProblem& p);

}  // namespace tessera::cpu
