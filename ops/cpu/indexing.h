// Rows and elements by number, and the sums that are the adjoints of taking them.
//
// Arrays have three dims, [a, rows, b], and any strides. Numbers are I64, contiguous, and fit the rows they
// name; a negative one names nothing: taking it gives zeros, putting it does nothing.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

struct IndexArgs {
  Array to;
  Array from;
  Array numbers;
};
// to[a, m, b] = from[a, numbers[m], b]
void take_rows(const IndexArgs& args);
// to[a, numbers[m], b] += from[a, m, b], in the order of m whatever the number of threads; bools are or-ed.
// `to` has from's type, or f32 where that is bf16.
void put_rows(const IndexArgs& args);
// The same with a number for each element: numbers [a, m, b].
void take_elements(const IndexArgs& args);
void put_elements(const IndexArgs& args);

}  // namespace tessera::cpu
