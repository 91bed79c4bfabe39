// Running sums; internal kernels of cumsum.
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

// Sums run in double for floating types (one rounding per result, whatever the length) and in i64 for
// integers. The n positions of x [A, n, B] (contiguous) are pieces of the scanned dim, `lengths` long, one
// after another.

// sums [pieces, A, B] (f64 or i64): of each piece.
struct PieceSumsArgs {
  Array sums;
  Array x;
  std::vector<std::int64_t> lengths;
};
void piece_sums(const PieceSumsArgs& args);

// out [A, n, B] (x's type; i64 for integers): running sums within each piece, begun at starts [pieces, A, B]
// (undefined: 0). From the end if `reverse`.
struct RunningSumsArgs {
  Array out;
  Array x;
  std::vector<std::int64_t> lengths;
  Array starts;
  bool reverse = false;
};
void running_sums(const RunningSumsArgs& args);

}  // namespace tessera::cpu
