// Order along a dim: sort, argsort, topk, with PyTorch's names and semantics.
//
// Values in order and the numbers (I64) of where they came from. The order is strict on every mesh: equal
// values by number, the lowest first, also in topk and when descending; NaN is greater than everything, zeros
// of both signs are equal. Any dtype; gradients go back to where values came from, any number of times.
//
// Sharded, and the dim not cut: local. If it is cut, the whole dim is nowhere gathered:
//   sort  where another dim can take the cut (it is whole and no shorter than there are ranks), x is re-cut
//         along that one, one exchange, and the results stay so. Else a sample sort
//         (ops/indexing/sample_sort.h): values travel with their numbers, the results are cut exactly as x
//         is.
//   topk  the best k of every rank go to all, which merge them; the results are whole along the dim. Where
//         moving x to the cut of another dim is less, that; a k close to the whole dim is a sort.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// {values, indices}. Always stable.
std::pair<Tensor, Tensor> sort(const Tensor& x, std::int64_t dim = -1, bool descending = false);
Tensor argsort(const Tensor& x, std::int64_t dim = -1, bool descending = false);

struct TopkOptions {
  std::int64_t dim = -1;
  bool largest = true;
};
// {values, indices} of the k greatest (or least), always in order. 0 <= k <= size of the dim.
std::pair<Tensor, Tensor> topk(const Tensor& x, std::int64_t k, const TopkOptions& options = {});

// The middle value, the lower one of two, and its place; NaN, and the first one's place, where there is any.
// The dim must not be empty.
std::pair<Tensor, Tensor> median(const Tensor& x, std::int64_t dim, bool keepdim = false);
// Of all elements, whose gradient those of that value share; NaN of none.
Tensor median(const Tensor& x);

}  // namespace tessera
