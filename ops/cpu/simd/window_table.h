// Vector kernels of windows: sparse matrices along a dim (pooling by means, interpolation), largest values.
// Plain pointers only, as in tables.h.
#pragma once
#include <cstdint>
#include <type_traits>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

// What many outputs read of a contiguous line, a vector of outputs at a time (a block), each of them the same
// number of taps. Tap t of block b is entry b taps + t: its numbers lie in `vectors` vectors at x + from and
// on, `order` brings each to its lane (32 bits at a time: two per double). With `vectors` 0 they lie further
// apart, and order holds their places in the line.
template <class T>
struct WindowLine {
  // As wide as the values, so that both fill one vector.
  using Place = std::conditional_t<std::is_same_v<T, double>, std::int64_t, std::int32_t>;
  const std::int64_t* output;  // the first one of every block; blocks may overlap
  const std::int64_t* from;
  const std::int32_t* order;  // negative: this output has no such tap, its weight is -0 (of the first one +0)
  const T* weight;
  const Place* place;  // in the line
  std::int64_t taps, vectors;
  bool ragged;  // whether any is negative
  // Blocks [even_lo, even_hi) read every other number of the two vectors at x + from: strides of 2.
  std::int64_t even_lo, even_hi;
};

template <class T>
struct WindowBlocks {
  using Place = typename WindowLine<T>::Place;
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
  using Where = void (*)(T* to, const T* y, const std::int64_t* index, std::int64_t position, std::int64_t n);
  Where add_where;
  Where put_where;  // to what was 0 before
  // Outputs in a block of a WindowLine; 0 in a build that has no instructions for them, which takes none.
  std::int64_t lanes;
  // Blocks [lo, hi): the same sums in the same order.
  void (*line)(T* y, const T* x, const WindowLine<T>& line, std::int64_t lo, std::int64_t hi);
  // The largest value of windows over several lines: of equal ones the first, of NaN the last. Position
  // `start` + at[i] + place is written to `index`, where it is wanted.
  struct Lines {
    const T* const* x;
    const Place* at;
    std::int64_t count, start;
  };
  void (*largest)(T* y, std::int64_t* index, const Lines& lines, const WindowLine<T>& line,
                  std::int64_t blocks);
  // The same of `n` numbers side by side, where x is one tap each: the largest of x[t][i]. Of none: minus
  // infinity, and `start`.
  void (*largest_of)(T* y, std::int64_t* index, const Lines& taps, std::int64_t n);
};
struct WindowTable {
  WindowBlocks<float> f32;
  WindowBlocks<double> f64;
};
TESSERA_ISA_TABLE(WindowTable, window_table)

}  // namespace tessera::cpu
