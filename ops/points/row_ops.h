// The linear map "these rows of that matrix" and its adjoint, wherever the rows are. Internal to ops/points.
//
// Each is the other's gradient, so what is written with them can be differentiated as often as one likes.
// Rows are asked of their owners: counts, row numbers, and the rows themselves, each row once a rank.
#pragma once
#include <memory>

#include "autograd/tensor.h"

namespace tessera::points {

// Remembers how the rows of one index tensor were found, so that the next call need not ask again. Give the
// same one to calls with the same table and rows only.
struct RowMemo;
using RowMemoPtr = std::shared_ptr<RowMemo>;
RowMemoPtr make_row_memo();

// table [P, dims], rows [...] i64 of one or two dims (-1: a row of zeros) -> [..., dims].
Tensor take_rows(const Tensor& table, const Tensor& rows, const RowMemoPtr& memo);

// What a table is, without its values.
struct TableLike {
  Dims sizes;
  SpecPtr spec;  // null: plain
};
// values [..., dims] -> [P, dims], placed like the table: row p is the sum of the values whose rows[...] is
// p. Sums over ranks that hold the same table rows, but different values, stay owed.
Tensor add_rows(const Tensor& values, const Tensor& rows, const TableLike& table, const RowMemoPtr& memo);

}  // namespace tessera::points
