// Searches in one tree, on one device.
//
// Answers are in the order of (distance, id), both compared exactly as they are returned. They do not depend
// on the tree, on the order of the queries or on the threads.
#pragma once
#include "ops/points/tree.h"

namespace tessera::cpu::points {

// The k nearest points of each query among those at most `limit` away, merged with what was found before.
// queries [m, dims] contiguous, of the tree's type; order [m] i64: a walk through the queries in which
// neighbours follow each other. distances, ids [m, k], counts [m] i64: entries so far, ascending; in and out.
struct NearestArgs {
  PointTree tree;
  Array queries;
  Array order;
  double limit = 0;
  Array distances;
  Array ids;
  Array counts;
};
void nearest(const NearestArgs& args);

// The same where these are all points, so few (at most kLeafPoints) that a tree would be one leaf: points [n,
// dims] contiguous, whose ids are their rows. Every row of distances, ids and counts is written, padded as by
// pad_rows. unordered [2] i64: the first row of points, and of queries, that has a NaN or an infinity, or -1;
// if there is one, nothing else is written.
struct NearestOfFewArgs {
  Array points;
  Array queries;
  double limit = 0;
  Array distances;
  Array ids;
  Array counts;
  Array unordered;
};
void nearest_of_few(const NearestOfFewArgs& args);

// All points at most `radius` from each query. Without `ids`, counts them: counts [m] i64 grows. With them,
// writes query q's from position ends[q] on and moves ends[q] behind them, in no order.
struct WithinRadiusArgs {
  PointTree tree;
  Array queries;
  Array order;
  double radius = 0;
  Array counts;
  Array ends;       // [m] i64
  Array distances;  // [total], the tree's type
  Array ids;        // [total] i64
};
void within_radius(const WithinRadiusArgs& args);

// Sorts positions [ends[q] - counts[q], ends[q]) of distances and ids, for every q.
struct SortListsArgs {
  Array counts;
  Array ends;
  Array distances;
  Array ids;
};
void sort_lists(const SortListsArgs& args);

// Fills entries [counts[q], k) of each row with (infinity, -1).
void pad_rows(const Array& distances, const Array& ids, const Array& counts);

// mask [n] bool, by row: whether the point is within reach[c] (f64) of box c for some of cells [c, 2, dims].
// Of points in one place only the `most` with the lowest ids need be marked: no more can be an answer.
struct WithinReachArgs {
  PointTree tree;
  Array cells;
  Array reach;
  std::int64_t most = 0;
  Array mask;
};
void within_reach(const WithinReachArgs& args);

// near [1] bool: whether any of boxes [b, 2, dims] is within reach[c] of box c of cells.
struct AnyNearArgs {
  Array cells;
  Array reach;
  Array boxes;
  Array near;
};
void any_near(const AnyNearArgs& args);

// mask [nodes] bool: nodes of a tree of queries which have one of boxes [b, 2, dims] within reach and
// together hold all queries that do; reach [nodes] f64, of a node the largest among its children.
struct CellsNearArgs {
  PointTree tree;
  Array reach;
  Array boxes;
  Array mask;
};
void cells_near(const CellsNearArgs& args);

// rows [1] f64: how many of the points in boxes [b, 2, dims], weights [b] (f64), the queries that touch these
// are likely to need, if one needs at most per_query, and none beyond the radius.
struct ExpectedRowsArgs {
  PointTree queries;
  Array boxes;
  Array weights;
  double per_query = 0;
  double radius = 0;
  Array rows;
};
void expected_rows(const ExpectedRowsArgs& args);

// nearer [c] i64: for each of cells [c, 2, dims], rank cell_owners[c]'s, that touches none of that rank's
// boxes: the rank (with k points in all) whose boxes promise a point at the least distance, if that is
// another rank and within the limit. Else -1. boxes [b, 2, dims] of box_owners [b] (ascending) hold weights
// [b] (f64) points.
struct OthersNearerArgs {
  Array cells;
  Array cell_owners;
  Array boxes;
  Array weights;
  Array box_owners;
  std::int64_t k = 0;
  double limit = 0;
  Array nearer;
};
void others_nearer(const OthersNearerArgs& args);

// reach [nodes] f64, for the nodes of a tree of queries: a distance within which each of its queries has k
// points or all that there are. Known are the boxes of all points [b, 2, dims] with their numbers weights [b]
// (f64), which are asked for the nodes of level `level`, and what the queries have found so far: counts [m]
// and distances [m, k], by row, or know otherwise: bounds [m].
struct QueryReachArgs {
  PointTree queries;
  int level = 0;
  Array boxes;
  Array weights;
  double limit = 0;
  Array distances;
  Array counts;
  Array bounds;
  Array reach;
};
void query_reach(const QueryReachArgs& args);

}  // namespace tessera::cpu::points
