// Forecasts without learning, and how forecasts are scored.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "examples/winds/data.h"

namespace tessera::winds {

// Root-mean-square error in m/s over months, cells and both components: every cell alike, and weighted by
// cos(latitude), which is its area.
struct Score {
  std::string name;
  double plain = 0;
  double weighted = 0;
};

// Collects squared errors of this rank's cells, month by month.
class ScoreSums {
 public:
  explicit ScoreSums(const WindData& data) : data_(&data), sums_(4) {}
  // `forecast`: [2, rows, cols] of this rank, m/s, any floating dtype.
  void add(int month, const Array& forecast);
  // Collective over `comm`, whose ranks together have added every cell of a month as often as any other: the
  // domain if each replica scores all months, the world if months are shared out. The same bits on every
  // mesh.
  Score reduce(const std::string& name, const Communicator& comm) const;

 private:
  const WindData* data_;
  ExactSums sums_;  // squares, count, weighted squares, weights
};

// Collective over the data's domain; on the held-out months, in this order:
//   persistence:           x[t-1]
//   climatology:           c[t mod 12]
//   damped, one:           c + k a[t-1], one k for all (WindData::overall_damping)
//   damped, per cell:      c + k a[t-1], k per cell and component (WindData::damping): the model's base
std::vector<Score> baseline_scores(const WindData& data);

// The table as text, one row per score; the lowest figure of each column is marked.
std::string score_table(std::span<const Score> scores);

}  // namespace tessera::winds
