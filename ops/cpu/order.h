// Sorting rows of values that carry numbers: by value, equal ones by number, so that an order is always
// strict. NaN is greater than everything, as in PyTorch; zeros of both signs are equal. Any dtype.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu {

// The first k of each row in order: values and numbers (positions in the row, I64) are [rows, k], x is
// [rows, n], k <= n; all contiguous.
struct OrderRowsArgs {
  Array values;
  Array numbers;
  Array x;
  bool descending = false;
};
void order_rows(const OrderRowsArgs& args);

// The middle of each row in that order, the lower one of two, or the first NaN if there is any: values and
// numbers (I64) are [outer, inner], x is [outer, n, inner], n at least 1; all contiguous.
struct MedianArgs {
  Array values;
  Array numbers;
  Array x;
};
void median(const MedianArgs& args);

// Items with numbers of their own (I64), several rows one after another: row r is [ends[r - 1], ends[r]) of
// x and numbers, and of the results. One dim, contiguous; ends is I64.
struct OrderItemsArgs {
  Array values;
  Array numbers;
  Array x;
  Array x_numbers;
  Array ends;
  bool descending = false;
};
void order_items(const OrderItemsArgs& args);

// Rows that are in order, cut at items: cuts[row, j] is how many items of the row come before item j of `at`.
// values and numbers [rows, n], at_values and at_numbers [rows, m], cuts [rows, m] (I64); all contiguous.
struct CutRowsArgs {
  Array cuts;
  Array values;
  Array numbers;
  Array at_values;
  Array at_numbers;
  bool descending = false;
};
void cut_rows(const CutRowsArgs& args);

}  // namespace tessera::cpu
