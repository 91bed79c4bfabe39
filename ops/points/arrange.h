// Clouds whose rows lie in no order of place: every row moves once, to the rank that keeps the region it is
// in.
//
// With points dealt out at random every rank has a query near every point, and what is in reach is
// everything, on every rank. So the points and queries of such a cloud are sent to where their neighbours are
// (regions are worked out alike on all ranks from the published boxes), searched there, and the answers
// return.
#pragma once
#include <optional>

#include "ops/points/survey.h"

namespace tessera::points {

class Arrangement {
 public:
  // Collective; nothing if the cloud is in order, or so crowded into one place that no division is fair.
  // The same on all ranks.
  static std::optional<Arrangement> of(const Survey& survey, double per_query, double radius);

  const Cloud& cloud() const { return cloud_; }
  // Collective: the answers for the arranged queries, as answers for the queries that were given.
  Nearest back(const Nearest& found) const;
  Lists back(const Lists& found) const;

 private:
  Cloud cloud_;
  RowRoute route_;            // of the queries
  std::int64_t queries_ = 0;  // of this rank before
};

}  // namespace tessera::points
