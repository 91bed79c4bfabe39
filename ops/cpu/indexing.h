// Rows and elements by number, and the sums that are the adjoints of taking them.
//
// Arrays have three dims, [a, rows, b], and any strides. Numbers are I64, contiguous, and fit the rows they
// name; a negative one names nothing: taking it gives zeros, putting it does nothing.
#pragma once
#include <functional>
#include <span>
#include <string>

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
// `to` has from's type, or f32 where that is bf16 or f16.
void put_rows(const IndexArgs& args);
// The same with a number for each element: numbers [a, m, b].
void take_elements(const IndexArgs& args);
void put_elements(const IndexArgs& args);

// Rows [lo, hi) of the whole lie here at row `local` and on.
struct HeldRows {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
  std::int64_t local = 0;
};
// Numbers of rows of the whole -> numbers of rows as they lie here, or -1: rows that are not here, `padding`
// and, unless they count from the end, negative numbers. Both contiguous.
struct OwnNumbersArgs {
  Array own;
  Array numbers;
  std::int64_t n = 0;                   // rows of the whole
  std::int64_t padding = -1;            // names nothing
  std::span<const HeldRows> held = {};  // ascending
  bool all = false;                     // all rows are here, under their own numbers
  bool from_end = false;                // -1 is the last row, -n the first
  // Numbers outside [0, n), or [-n, n), have not been looked for. Who works on them away from the host does,
  // takes them for -1, and refuses in the name of `op` with the text that `refusal` makes of one when the
  // host next waits. The CPU's callers look themselves, before anything else.
  const char* op = nullptr;
  std::function<std::string(std::int64_t)> refusal = {};
};
void own_numbers(const OwnNumbersArgs& args);

}  // namespace tessera::cpu
