// Indexing with tensors of numbers (I64 or I32), with PyTorch's names and semantics.
//
// Sharded: any placement of every input; only the rows and elements that are asked for travel, and where the
// index is whole or the indexed dim is, nothing does (ops/indexing/take.h has the rules, and who refuses a
// number that is out of range). Numbers are never negative, but in take_along_dim. All are linear in x (in
// the table, in src), differentiable any number of times, and add in the same order in every run.
#pragma once
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

// The rows index[0], index[1], … of `dim`; the index has one dim, or none for one row.
Tensor index_select(const Tensor& x, std::int64_t dim, const Tensor& index);
// y[…, j, …] = x[…, index[…, j, …], …]: a number for each element, the index no larger than x in the other
// dims.
Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index);
// x with src[…, j, …] added at […, index[…, j, …], …]; the index is no larger than src, and than x in the
// other dims.
Tensor scatter_add(const Tensor& x, std::int64_t dim, const Tensor& index, const Tensor& src);
struct EmbeddingOptions {
  std::int64_t padding_idx = INT64_MIN;  // its gradient leaves out this row; from the end; INT64_MIN: none
  // Rows that the index names, on any rank, and whose norm of order norm_type is larger are shortened to it
  // first: in the table itself, in place, in every copy (which is one pass over the table, and a message
  // where the index or its width is cut). Nothing of that is on the tape.
  std::optional<double> max_norm = {};
  double norm_type = 2.0;
  bool scale_grad_by_freq = false;  // a row's gradient is divided by how often the whole index names it
};
// Rows of table [n, width] for an index of any shape: [index…, width]. The table's gradient is a sum over the
// ranks that hold parts of the index; it stays owed (Partial) unless the table's rows are cut.
Tensor embedding(const Tensor& table, const Tensor& index, const EmbeddingOptions& options = {});
// gather after broadcasting all dims but `dim`; negative numbers count from the end. Without a dim: of all
// elements in row-major order.
Tensor take_along_dim(const Tensor& x, const Tensor& index, std::int64_t dim);
Tensor take_along_dim(const Tensor& x, const Tensor& index);
// [index…, num_classes] of 0 and 1 (I64). -1: one more than the largest number, which is a message if the
// index is cut.
Tensor one_hot(const Tensor& index, std::int64_t num_classes = -1);
// x with `value` where the mask is true (broadcast).
Tensor masked_fill(const Tensor& x, const Tensor& mask, double value);

}  // namespace tessera
