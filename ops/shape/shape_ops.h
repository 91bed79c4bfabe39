// Shape operations, with PyTorch's names and semantics.
//
// Sharded: cuts follow the elements wherever they can be said as intervals: merging and splitting dims,
// permuting, slicing, splitting, concatenating, flipping, repeating, diagonals and constant padding move
// nothing. roll and circular padding are one exchange. What removes a cut dim (select, unbind, squeeze of a
// dim of size 1) brings what is left to all ranks or re-shards another dim. reshape re-shards only when a
// split falls inside a rank's interval.
#pragma once
#include <concepts>
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

Tensor reshape(const Tensor& x, const Dims& sizes);  // one entry may be -1
Tensor flatten(const Tensor& x, std::int64_t start_dim = 0, std::int64_t end_dim = -1);
Tensor unflatten(const Tensor& x, std::int64_t dim, const Dims& sizes);
Tensor permute(const Tensor& x, const Dims& dims);
Tensor transpose(const Tensor& x, std::int64_t dim0, std::int64_t dim1);
Tensor unsqueeze(const Tensor& x, std::int64_t dim);
Tensor squeeze(const Tensor& x, std::int64_t dim);  // a dim that is not 1 stays
Tensor squeeze(const Tensor& x, const Dims& dims);
Tensor squeeze(const Tensor& x);  // all dims of size 1
Tensor movedim(const Tensor& x, const Dims& source, const Dims& destination);
Tensor expand(const Tensor& x, const Dims& sizes);        // -1 keeps a size
Tensor broadcast_to(const Tensor& x, const Dims& sizes);  // the same
// [start, end) in steps; negative values count from the end; an open end is INT64_MAX.
Tensor slice(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t end = INT64_MAX,
             std::int64_t step = 1);
Tensor narrow(const Tensor& x, std::int64_t dim, std::int64_t start, std::int64_t length);
Tensor select(const Tensor& x, std::int64_t dim, std::int64_t index);
Tensors split(const Tensor& x, const std::vector<std::int64_t>& sizes, std::int64_t dim = 0);
// Pieces of `size` elements; the last may be smaller. A number in braces is a list of one, as above.
Tensors split_evenly(const Tensor& x, std::int64_t size, std::int64_t dim = 0);
template <std::integral Size>
Tensors split(const Tensor& x, Size size, std::int64_t dim = 0) {
  return split_evenly(x, static_cast<std::int64_t>(size), dim);
}
Tensors chunk(const Tensor& x, std::int64_t chunks, std::int64_t dim = 0);
Tensors unbind(const Tensor& x, std::int64_t dim = 0);
// cat and stack give what the tensors' dtypes promote to.
Tensor cat(const Tensors& tensors, std::int64_t dim = 0);  // a vector of no elements fits any others
Tensor stack(const Tensors& tensors, std::int64_t dim = 0);
Tensor flip(const Tensor& x, const Dims& dims);
Tensor roll(const Tensor& x, const Dims& shifts, const Dims& dims);

// Copies of the whole; more numbers than dims make new leading dims.
Tensor repeat(const Tensor& x, const Dims& repeats);
Tensor tile(const Tensor& x, const Dims& repeats);  // fewer numbers count for the last dims
// Every element `repeats` times in place; without a dim: of the flattened tensor.
Tensor repeat_interleave(const Tensor& x, std::int64_t repeats, std::optional<std::int64_t> dim = {});
// Elements (i, i + offset) of two dims, as a new last dim.
Tensor diagonal(const Tensor& x, std::int64_t offset = 0, std::int64_t dim1 = 0, std::int64_t dim2 = 1);

enum class PadMode : std::uint8_t { Constant, Circular, Reflect, Replicate };
// `pad`: pairs (before, after), last dim first, as in torch.nn.functional.pad; negative crops, before
// anything grows. Reflect and Replicate take floating maps of 1 to 3 padded dims under a channel dim and
// perhaps a batch dim; what they read of a neighbour comes in one exchange. Reflected padding must be smaller
// than the dim.
Tensor pad(const Tensor& x, const std::vector<std::int64_t>& pad, PadMode mode = PadMode::Constant,
           double value = 0.0);

}  // namespace tessera
