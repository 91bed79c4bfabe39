// Matrix products by cuBLASLt. Its interface is known to blas.cpp alone.
//
//   d = f(p q (+ bias) (+ d))     d [m, n], p [m, k], q [k, n], bias [m], the same for every column
//
// d lies column by column; p and q do, or their transposes. A batch is the same product at pointers that
// advance by fixed strides. Algorithms are chosen by cuBLASLt's heuristic, once per shape, and kept.
#pragma once
#include "runtime/cuda/api.h"
#include "runtime/dtype.h"

namespace tessera::cuda {

// One operand in memory; counted in elements.
struct BlasLayout {
  std::int64_t ld = 1;            // from one column in memory to the next
  std::int64_t batch_stride = 0;  // may be 0 for p and q
  std::int64_t alignment = 256;   // bytes that all its pointers are multiples of: a power of two, <= 256
  bool transposed = false;        // what lies column by column is the transpose; never d
  bool operator==(const BlasLayout&) const = default;
};

// Which f its epilogues offer. Its GELU is the approximation by tanh.
enum class BlasActivation : std::uint8_t { None, Relu, GeluTanh };

// All that the choice of an algorithm depends on.
struct BlasShape {
  DType dtype = DType::F32;  // floating; bf16 and f16 are summed in f32
  std::int64_t m = 0, n = 0, k = 0, batch = 1;
  BlasLayout d, p, q;
  bool bias = false;
  bool accumulate = false;
  bool tf32 = false;
  BlasActivation activation = BlasActivation::None;
  // What GeluTanh is given is written too, into columns that are so far apart: a multiple of 8; 0: it is not.
  std::int64_t given_ld = 0;
  bool operator==(const BlasShape&) const = default;
};

struct BlasPointers {
  void* d = nullptr;
  const void* p = nullptr;
  const void* q = nullptr;
  const void* bias = nullptr;  // dense_for_library (library_operands.h)
  void* given = nullptr;       // a multiple of 16
};

class BlasPlan;
// This thread's plan for a shape, made when it is first asked for; a bounded number of them is kept. It lives
// until the thread's next call of this function. nullptr: cuBLASLt has no algorithm for it.
BlasPlan* blas_plan(const BlasShape& shape);
// Device memory that run_blas needs, 256-byte aligned.
std::int64_t workspace_bytes(const BlasPlan& plan);
// Asynchronous.
void run_blas(BlasPlan& plan, const BlasPointers& pointers, void* workspace, StreamHandle stream);

}  // namespace tessera::cuda
