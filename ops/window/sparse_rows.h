// A sparse matrix by rows, and its product with an array along one dim. Knows nothing above runtime/.
#pragma once
#include <vector>

#include "runtime/array.h"

namespace tessera::cpu {

// Row o reads positions index[first[o]] … index[first[o + 1] − 1] with these weights.
struct SparseRows {
  std::vector<std::int64_t> first{0};
  std::vector<std::int64_t> index;
  std::vector<double> weight;
  // What a backend made of the finished matrix at its first use, in its own memory.
  struct Copies {
    Array rows;
    Array transposed;
  };
  mutable Copies copies;

  std::int64_t rows() const { return static_cast<std::int64_t>(first.size()) - 1; }
  void reserve(std::int64_t outputs, std::int64_t terms) {
    first.reserve(static_cast<std::size_t>(outputs) + 1);
    index.reserve(static_cast<std::size_t>(terms));
    weight.reserve(static_cast<std::size_t>(terms));
  }
  void add(std::int64_t position, double w) {
    index.push_back(position);
    weight.push_back(w);
  }
  void end_row() { first.push_back(static_cast<std::int64_t>(index.size())); }
};
// The transposed matrix, of a matrix with `columns` columns.
SparseRows transposed(const SparseRows& rows, std::int64_t columns);

// y[i, o, j] = Σ weight x[i, index, j]. Both are contiguous and of one type, f32 or f64.
struct ApplyRowsArgs {
  Array y;
  Array x;
  const SparseRows* rows = nullptr;
};
void apply_rows(const ApplyRowsArgs& args);

// Two matrices, one after the other, along dims that follow each other in memory: `outer` along dim 1 of
// [i, o, p, j], `inner` along dim 2. Both are contiguous and of one type, f32 or f64.
struct ApplyTwoRowsArgs {
  Array y;
  Array x;
  const SparseRows* outer = nullptr;
  const SparseRows* inner = nullptr;
};
void apply_two_rows(const ApplyTwoRowsArgs& args);

}  // namespace tessera::cpu
