// Neighbours in point clouds: k nearest, and all within a radius.
//
// points [P, D], queries [Q, D], D from 1 to 8, of one floating type (bf16 and f16 computed in f32).
// Distances are Euclidean, sqrt of the sum of squares in the order of the dims, each operation rounded once
// in the type of the coordinates, so that they are the same bits on every mesh. Neighbours come in ascending
// order of (distance, index), index being the global row of `points`: among equally far ones the lowest index
// is first, also where a list is cut off. (bf16, f16: the order is that of the f32 distances, which are
// rounded afterwards.) The result is that of comparing every query with every point.
//
// Sharded: points and queries may be placed in any way. The results' rows are cut like the queries'; axes
// over which the queries are Replicate (or which cut their coordinates, or owe sums) while they cut the
// points share out the rows of the result. Coordinates that are cut and sums that are owed are re-sharded
// first. What travels is a few boxes a rank (at most 64, whatever the number of points) to all ranks, then
// the points within reach of another rank's query boxes to that rank; ranks that are farther apart exchange
// nothing but the boxes. The tighter a rank's points and queries lie together, the less moves: order a cloud
// by place before cutting it.
//
// Gradients: of the distances, with respect to points and queries, any number of times. At distance 0 the
// gradient is 0 (so are all further ones), as it is where the square of the distance underflows or overflows.
// The points' gradient is added where the points are.
//
// Refused, with the same text on all ranks: k or sizes out of range, differing dims or dtypes, a NaN or an
// infinity among the coordinates (the first row that has one is named). Plain tensors must be the same on all
// ranks. Results depend on values, so the meta device is refused.
#pragma once
#include "autograd/tensor.h"

namespace tessera {

struct NearestNeighbors {
  Tensor distances;  // [Q, k]
  Tensor indices;    // [Q, k] i64
};
// 1 <= k <= P.
NearestNeighbors knn(const Tensor& points, const Tensor& queries, std::int64_t k);

struct RadiusNeighbors {
  Tensor distances;  // [Q, max_neighbors]; beyond the count: infinity
  Tensor indices;    // [Q, max_neighbors] i64; beyond the count: -1
  Tensor counts;     // [Q] i64: how many entries are neighbours
};
// The nearest max_neighbors (at least 1) points at most `radius` away; radius in [0, infinity], rounded to
// the type of the coordinates.
RadiusNeighbors radius_search(const Tensor& points, const Tensor& queries, double radius,
                              std::int64_t max_neighbors);

// The same without a limit on their number: the queries' lists one after another, in the order of the
// queries. All four are tensors over the same mesh as always, with global sizes, and what they say is global:
// `offsets` count from the first entry of query 0, `indices` are rows of the whole `points`. counts and
// offsets are cut like the queries, the lists so that the entries of a query are with it: locally, a rank has
// the lists of its local queries one after another, as its local counts tell. The number of neighbours N must
// be told to all ranks: one more small message.
struct NeighborLists {
  Tensor distances;  // [N]
  Tensor indices;    // [N] i64
  Tensor counts;     // [Q] i64
  Tensor offsets;    // [Q] i64: entries of query q are [offsets[q], offsets[q] + counts[q])
  Tensor rows;       // [N] i64: which query an entry belongs to
};
NeighborLists radius_search(const Tensor& points, const Tensor& queries, double radius);

}  // namespace tessera
