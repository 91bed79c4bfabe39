// Matrix products: c = a b (+ bias) or c += a b, with batch dims.
//
// f32 and bf16 go to oneDNN, whose primitives we keep by shape and strides; very small products and those in
// f64 or integers take our own loops, f16 goes by way of f32. Transposed views are passed on as they are.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

struct MatmulArgs {
  Array c;     // [..., M, N]
  Array a;     // [..., M, K]
  Array b;     // [..., K, N]
  Array bias;  // [N], c's dtype, any stride; or undefined
  bool accumulate = false;
};
// All three have the same number of dims (>= 2) and the same batch sizes (stride 0 where expanded, in a and b
// only) and one dtype (not bool). Any strides. K = 0 gives zeros (or the bias). c must not overlap a or b.
void matmul(const MatmulArgs& args);

}  // namespace tessera::cpu
