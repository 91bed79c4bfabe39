// What the kernels of layer norm and root-mean-square norm share: their checks, loops over rows, and sums
// over rows.
#pragma once
#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/cpu/rows.h"
#include "runtime/error.h"

namespace tessera::cpu {

inline void check_rows(const char* op, const Array& x, const Array& like) {
  TS_CHECK(x.dim() == 2 && x.sizes() == like.sizes() && x.is_contiguous(), op,
           "operand of sizes {} and strides {}; contiguous rows of sizes {} are needed", x.sizes().str(),
           x.strides().str(), like.sizes().str());
  TS_CHECK(x.dtype() == like.dtype(), op, "operands of types {} and {}; they must be equal",
           name_of(x.dtype()), name_of(like.dtype()));
}

inline void check_vector(const char* op, const Array& x, std::int64_t n, DType dtype) {
  if (!x.defined()) return;
  TS_CHECK(x.numel() == n && x.is_contiguous() && x.dtype() == dtype, op,
           "vector of {} {}; a contiguous one of {} elements of type {} is needed", x.numel(),
           name_of(x.dtype()), n, name_of(dtype));
}

inline DType accumulator(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

// A vector of `cols` numbers in the computing type: in place, or converted into `buffer`. Null if undefined.
template <class S>
const Compute<S>* vector_in(const Array& x, std::int64_t cols, std::vector<Compute<S>>& buffer) {
  if (!x.defined()) return nullptr;
  if constexpr (!std::is_same_v<S, Compute<S>>) buffer.resize(static_cast<std::size_t>(cols));
  return row_in<S>(x.data<S>(), 1, cols, buffer.data());
}

// body(r, buffer) for every row, a few rows on one thread; `buffers` rows of scratch where S is converted.
template <class S, class Body>
void for_row_groups(const Array& x, double flops, std::int64_t buffers, const Body& body) {
  using T = Compute<S>;
  const std::int64_t rows = x.size(0);
  const std::int64_t cols = x.size(1);
  const std::int64_t group = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(cols, 1));
  const int threads = threads_for(flops * static_cast<double>(x.numel()));
  parallel_for(ceil_div(rows, group), threads, [&](std::int64_t piece) {
    std::vector<T> buffer(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(buffers * cols));
    for (std::int64_t r = piece * group; r < std::min(rows, (piece + 1) * group); ++r) body(r, buffer.data());
  });
}

// Parts of the rows, each with its own sums over them.
struct RowParts {
  static constexpr std::int64_t kMost = 32;
  RowParts(std::int64_t all, std::int64_t cols)
      : rows(all),
        group(std::max(ceil_div(all, kMost),
                       std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(cols, 1)))),
        count(ceil_div(all, group)) {}
  std::int64_t first(std::int64_t part) const { return part * group; }
  std::int64_t last(std::int64_t part) const { return std::min(rows, (part + 1) * group); }
  std::int64_t rows, group, count;
};

// Sums the parts' rows in order, in double.
template <class S>
void combine_parts(const Array& out, const std::vector<Compute<S>>& parts, std::int64_t cols) {
  if (!out.defined()) return;
  std::vector<double> sum(static_cast<std::size_t>(cols), 0.0);
  blocks_of<Compute<S>>(reduce_table())
      .add_columns(sum.data(), parts.data(),
                   static_cast<std::int64_t>(parts.size()) / std::max<std::int64_t>(cols, 1), cols, cols);
  S* p = out.data<S>();
  for (std::int64_t j = 0; j < cols; ++j)
    p[j] = static_cast<S>(static_cast<Compute<S>>(sum[static_cast<std::size_t>(j)]));
}

}  // namespace tessera::cpu
