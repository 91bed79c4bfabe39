// Vector kernels of the losses. Plain pointers only, as in tables.h.
#pragma once
#include <cstdint>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

template <class T>
struct LossBlocks {
  using Count = std::int64_t;
  // out = scale · f(x, t, p); p may be null (ones).
  using Pair = void (*)(T* out, const T* x, const T* t, const T* p, Count n, T alpha, T scale);
  const Pair* pair;  // by PairLoss, then PairPart

  // Rows over classes, each position of a block a row of its own. A row's `top` is what its numbers are
  // shifted by before exp.
  void (*raise)(T* top, const T* x, Count n);                  // top = max(top, x)
  void (*add_exp)(T* sum, const T* x, const T* top, Count n);  // sum += exp(x - top)
  void (*add_scaled)(T* sum, const T* x, Count n, T factor);   // sum += factor x
  // dx = exp(x - lse) a - shift b; shift is of the class.
  void (*class_gradient)(T* dx, const T* x, const T* lse, const T* a, const T* b, Count n, T shift);
  // One row of n classes: its largest number, and the sum of exp(x - top).
  T (*row_top)(const T* x, Count n);
  T (*row_exp)(const T* x, Count n, T top);
  // dx = exp(x - lse) a - b w; w may be null (ones).
  void (*row_gradient)(T* dx, const T* x, const T* w, Count n, const T* lse_a_b);
};
struct LossTable {
  LossBlocks<float> f32;
  LossBlocks<double> f64;
};
TESSERA_ISA_TABLE(LossTable, loss_table)

}  // namespace tessera::cpu
