// Blocks of element-wise functions of three operands.
#pragma once
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu {

// Contiguous; out may be an operand.
template <class T>
struct TernaryBlocks {
  using Block = void (*)(T* out, const T* a, const T* b, const T* c, i64 n, T alpha);
  const Block* by_op;  // by TernaryOp
};
struct TernaryTable {
  TernaryBlocks<float> f32;
  TernaryBlocks<double> f64;
};
TESSERA_ISA_TABLE(TernaryTable, ternary_table)

}  // namespace tessera::cpu
