// Vector kernels of sparse matrices along a dim (pooling by means, interpolation). Plain pointers only, as in
// tables.h.
#pragma once
#include <cstdint>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

template <class T>
struct WindowBlocks {
  // Rows [lo, hi) of a matrix: row o is written to y + (o - lo) inner and is the sum over t from first[o] to
  // first[o + 1] of weight[t] times the `inner` numbers at x + index[t] inner. Four terms are summed at a
  // time, products and sums rounded one by one: every instruction set gives the same bits.
  struct Rows {
    const std::int64_t* first;
    const std::int64_t* index;
    const T* weight;
    std::int64_t lo, hi, inner;
    std::int64_t taps;  // of every row; 0: they differ
  };
  void (*rows)(T* y, const T* x, const Rows& rows);
  // to[i] += y[i] where index[i] is `position`.
  void (*add_where)(T* to, const T* y, const std::int64_t* index, std::int64_t position, std::int64_t n);
};
struct WindowTable {
  WindowBlocks<float> f32;
  WindowBlocks<double> f64;
};
TESSERA_ISA_TABLE(WindowTable, window_table)

}  // namespace tessera::cpu
