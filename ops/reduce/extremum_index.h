// Where the largest (smallest) element of a row is: the kernels of argmax and argmin.
//
// A candidate is a pair of integers, the same for every element type: a key that orders as the values do
// (larger keys win; NaN has the largest, as it wins in PyTorch) and a global index (of equal keys the smaller
// index wins). Parts of a row can therefore be merged in any order, on any rank.
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

struct ExtremumIndexArgs {
  Array key;                            // i64 [A, B]
  Array index;                          // i64 [A, B]
  Array x;                              // [A, n, B], contiguous, any type
  std::vector<std::int64_t> positions;  // of the n elements
  std::vector<std::int64_t> offsets;    // added to the positions of row a; empty: none
  std::int64_t none = 0;                // the index where there is no element: above every other
  bool largest = true;
};
// Keys of types of up to four bytes fit into an i32. No element: the lowest such key, and `none`.
void extremum_index(const ExtremumIndexArgs& args);

// The winners of P >= 1 candidates each: keys and indices [P, rows] into key and index [rows].
struct MergeExtremaArgs {
  Array key;
  Array index;
  Array keys;
  Array indices;
};
void merge_extrema(const MergeExtremaArgs& args);

}  // namespace tessera::cpu
