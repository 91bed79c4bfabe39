// A tensor with a part of it replaced, with PyTorch's names and semantics: what writing into the part would
// leave.
//
// Sharded: the result lies as x does, and what replaces the part travels to where x has it.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

// src has the sizes of slice(x, dim, start, end, step), and x's dtype.
Tensor slice_scatter(const Tensor& x, const Tensor& src, std::int64_t dim = 0, std::int64_t start = 0,
                     std::int64_t end = INT64_MAX, std::int64_t step = 1);
// src has the sizes of select(x, dim, index), and x's dtype.
Tensor select_scatter(const Tensor& x, const Tensor& src, std::int64_t dim, std::int64_t index);

}  // namespace tessera
