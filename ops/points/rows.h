// Rows of matrices by number: the local halves of everything that sends rows about.
#pragma once
#include "runtime/array.h"

namespace tessera::cpu::points {

// out[i] = table[rows[i]], zeros where rows[i] is -1. rows: i64, contiguous, any shape; table [n, ...] and
// out [rows.numel(), ...] contiguous, any dtype.
struct TakeRowsArgs {
  Array out;
  Array table;
  Array rows;
};
void take_rows(const TakeRowsArgs& args);

// table[rows[i]] += values[i] in the order of i; f32, f64 and i64.
struct AddRowsArgs {
  Array table;
  Array values;
  Array rows;
};
void add_rows(const AddRowsArgs& args);

}  // namespace tessera::cpu::points
