// What layer norm and root-mean-square norm share: rows over the last dims. Internal to ops/norm.
#pragma once
#include "ops/op.h"

namespace tessera {

struct RowNorm {
  Dims dims;   // the normalised ones, of x
  Dims shape;  // their sizes
  double eps = 1e-5;
  double count = 1;  // elements per row
};

// Refuses what does not fit. `parameters`: weight and bias, of the normalised sizes and x's dtype, or
// undefined.
RowNorm row_norm(const char* op, const Tensor& x, const Dims& shape, std::span<const Tensor> parameters);

// x, then `parameters` that follow the normalised dims -> y [, and `statistics` of every row].
Rule row_norm_rule(const Tensor& x, const RowNorm& n, int parameters, int statistics);
// That rule's strategy, where the statistics are complete on every rank that shares a row: Replicate, not
// Partial.
Strategy row_norm_plan(const Rule& rule, const std::vector<SpecPtr>& in, const Tensor& x, const RowNorm& n,
                       int statistics);

// Whether a rank holds parts of rows; spec null: plain.
bool rows_are_cut(const ShardSpec* spec, const RowNorm& n);
// Sums a number of every row over the ranks that hold its parts, in place: one message, where rows are cut.
void complete_rows(const Array& per_row, const ShardSpec* spec, const RowNorm& n);

// [rows, cols] view of contiguous local data.
Array as_rows(const Array& x, const RowNorm& n);
Array flat(const Array& a);

}  // namespace tessera
