#pragma once
#include "autograd/tensor.h"

namespace tessera::train {

// From a whole tensor on one rank to a tensor split over all ranks of a mesh: every rank receives its own box
// and no more. `x` counts on rank `source` (mesh order) only; the others pass Tensor() and learn sizes and
// dtype. `lengths`: one list per mesh axis, how many elements of the dim it shards each coordinate gets
// (empty: the default partition; zeros are fine). Placements are Shard and Replicate.
//
// Collective over the mesh: one small agreement, one exchange. A wrong argument on any rank, or ranks that
// disagree, are refused on all of them. The result is a leaf: no gradient goes back to `x`. A communicator
// that only records has no source to learn sizes from: there, the rank must be the source itself, or tensors
// are made from a spec.
Tensor scatter(const Tensor& x, int source, const DeviceMesh& mesh, const Placements& placements,
               const std::vector<std::vector<std::int64_t>>& lengths = {});
// The same for an array, as a program's own memory is wrapped.
Tensor scatter(const Array& x, int source, const DeviceMesh& mesh, const Placements& placements,
               const std::vector<std::vector<std::int64_t>>& lengths = {});

}  // namespace tessera::train
