// What every rank knows of where the others' points and queries are, and what follows from it.
#pragma once
#include "ops/points/cloud.h"
#include "ops/points/route.h"
#include "ops/points/search.h"

namespace tessera::points {

// Both trees of this rank, and what the ranks have published. Functions that publish or fetch are collective.
class Survey {
 public:
  // Publishes the boxes of points and queries; refuses, on every rank, coordinates that are not finite.
  explicit Survey(const Cloud& cloud);

  const Cloud& cloud() const { return cloud_; }
  const cpu::points::PointTree& points() const { return points_; }
  const cpu::points::PointTree& queries() const { return queries_; }
  // Whether other ranks hold points too: known from the specs alone.
  bool spread() const { return partners_ > 1; }
  // Whether the cloud lies so much in disorder that ranks would copy more points than there are rows in all:
  // then every row had better move once, to where its neighbours are. A query is likely to need per_query
  // points at most, and none beyond the radius. The same on all ranks.
  bool disordered(double per_query, double radius) const;

  // A distance within which each query surely has k points, [m]: queries that lie apart from this rank's
  // points ask a rank with nearer ones for the k-th of those. Infinity where there was nothing to ask.
  Array ask(std::int64_t k, double limit) const;
  // How far queries reach from now on: a distance, or as far as follows from what they have found.
  void reach(double radius);
  void reach(const Nearest& found, const Array& bounds, double limit);
  // The points of other ranks within reach of this rank's queries; of points in one place, the first `most`.
  cpu::points::PointTree fetch(std::int64_t most) const;

  // Boxes of the partners' points, and of their queries, with how many are in each.
  Cells all_points() const { return joined(&Summary::points); }
  Cells all_queries() const { return joined(&Summary::queries); }

 private:
  Cells joined(Cells Summary::*cells) const;
  Array owners(Cells Summary::*cells) const;  // the rank of each joined cell
  RowRoute questions(std::int64_t k, double limit) const;
  std::int64_t first_bad(std::int64_t Summary::*row) const;
  bool near(const Cells& queries, const Cells& points) const;
  std::vector<std::int64_t> cells_near(const Cells& points) const;
  Array cell_rows() const;
  std::vector<std::int64_t> rows_within(const Array& cell_rows, std::int64_t most) const;

  const Cloud& cloud_;
  std::int64_t partners_;
  cpu::points::PointTree points_;
  cpu::points::PointTree queries_;
  Array reach_;  // [nodes of the queries' tree] f64
  std::vector<Summary> known_;
};

}  // namespace tessera::points
