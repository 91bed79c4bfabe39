// Shape operations, with PyTorch's names and semantics.
//
// Sharded: cuts follow the elements wherever they can be said as intervals: merging and splitting dims,
// permuting, slicing, splitting, concatenating and constant padding move nothing. roll and circular padding
// are one exchange. reshape re-shards only when a split falls inside a rank's interval.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

Tensor reshape(const Tensor& x, const Dims& sizes);  // one entry may be -1
Tensor flatten(const Tensor& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
Tensor unflatten(const Tensor& x, std::int64_t dim, const Dims& sizes);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
Tensor squeeze(const Tensor& x, std::int64_t dim);  // a dim that is not 1 stays
Tensor expand(const Tensor& x, const Dims& sizes);  // -1 keeps a size
// [start, end) in steps; negative values count from the end; an open end is INT64_MAX.
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end = INT64_MAX,
             std::int64_t step = 1);
Tensors split(const Tensor& x, const Dims& sizes, std::int64_t dim = 0);
Tensor cat(const Tensors& tensors, std::int64_t dim = 0);
Tensor stack(const Tensors& tensors, std::int64_t dim = 0);
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);

enum class PadMode : std::uint8_t { Constant, Circular };
// `pad`: pairs (before, after), last dim first, as in torch.nn.functional.pad; negative crops (Constant
// only).
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pad, PadMode mode = PadMode::Constant,
           double value = 0.0);

}  // namespace tessera
