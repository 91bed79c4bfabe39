// The searches over all ranks, on local arrays.
//
// Points lie anywhere. Every rank first publishes the boxes of its points and queries (the nodes of one level
// of its trees: survey.h). If they lie in disorder, the rows move to where their neighbours are, and the
// answers back (arrange.h). Then:
//
//   nearest   finds the k nearest of its own points for each of its queries. The k-th of them, or the boxes
//             that surely hold k points, bound how far any answer can be. Every rank publishes the boxes of
//             its queries with that reach.
//   within    the reach is the radius, known beforehand.
//
// Where a rank's points lie within reach of another one's query boxes, the latter says more exactly what it
// needs (with smaller boxes of its tree of queries), and gets those points, each once; others exchange
// nothing more. A second search, among what came, completes the answer. Bounds are exact (geometry.h), so the
// result is that of comparing every query with every point.
#pragma once
#include <optional>

#include "comm/communicator.h"
#include "ops/op.h"

namespace tessera::points {

struct Cloud {
  const char* op = "";
  Array points;       // [n, dims] f32 or f64, contiguous: those of this rank
  Array point_ids;    // [n] i64: their global rows
  Array queries;      // [m, dims]
  Array query_ids;    // [m] i64
  Communicator comm;  // undefined: nothing is sharded
  // By rank of `comm`: its points and those of the other partners (this rank is one) are all points.
  std::vector<bool> partners;
};
// From the local arrays and specs of a call whose first inputs are points and queries, cut along rows only.
Cloud cloud_of(const char* op, const LocalCall& call);

// Refuses, on every rank, coordinates that are not finite.
struct Nearest {
  Array distances;  // [m, k] ascending; beyond the count: infinity
  Array ids;        // [m, k]; beyond the count: -1
  Array counts;     // [m] i64
};
// Refuses the first row of points, or of queries, with a coordinate that is not finite (-1: there is none).
void check_ordered(const char* op, std::int64_t bad_point, std::int64_t bad_query);
Nearest find_nearest(const Cloud& cloud, std::int64_t k, double limit);

// The same, as find_nearest says it, for the points of a call that are few and all on this rank: without
// trees, messages and rows' numbers. Nothing where they are not, or where a coordinate is not finite.
std::optional<Nearest> find_among_few(const LocalCall& call, std::int64_t k, double limit);

struct Lists {
  Array counts;     // [m] i64
  Array distances;  // [total]: the queries' lists one after another
  Array ids;        // [total] i64
};
Lists find_within(const Cloud& cloud, double radius);
// Likewise for few points, and few queries.
std::optional<Lists> find_within_among_few(const LocalCall& call, double radius);

}  // namespace tessera::points
