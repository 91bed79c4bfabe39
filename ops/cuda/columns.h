// Sums over the rows of a matrix, column by column, of two numbers at once. Rows are cut into parts, so that
// there is enough to do at the same time; the parts are added in order. All in double.
#pragma once
#include "ops/cuda/column_cuts.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {

struct TwoSums {
  double a = 0;
  double b = 0;
};

// The place of a thread in such a block.
struct ColumnPlace {
  std::int64_t sample, part, column, first, last;
  bool inside;
  TS_DEVICE ColumnPlace(const ColumnCuts& c, const Block& block) {
    const std::int64_t strips = c.strips();
    column = block.index() % strips * ColumnCuts::kWide + block.thread() % ColumnCuts::kWide;
    part = block.index() / strips % c.parts;
    sample = block.index() / strips / c.parts;
    first = part * c.length + block.thread() / ColumnCuts::kWide;
    last = (part + 1) * c.length < c.rows ? (part + 1) * c.length : c.rows;
    inside = column < c.columns;
  }
  TS_DEVICE std::int64_t number(const ColumnCuts& c) const {
    return (sample * c.parts + part) * c.columns + column;
  }
};
constexpr int kColumnBytes = 2 * ColumnCuts::kWide * ColumnCuts::kLanes * 8;
inline LaunchShape shape_for(const ColumnCuts& c) {
  return {c.blocks(), ColumnCuts::kWide * ColumnCuts::kLanes, kColumnBytes};
}

// The lanes of every column added up in order; threads of one column all get the sum.
TS_DEVICE TwoSums sum_lanes(const Block& block, const TwoSums& own) {
  double* all = block.shared<double>();
  constexpr int kThreads = ColumnCuts::kWide * ColumnCuts::kLanes;
  all[block.thread()] = own.a;
  all[kThreads + block.thread()] = own.b;
  block.sync();
  TwoSums sum;
  for (int lane = 0; lane < ColumnCuts::kLanes; ++lane) {
    const int at = lane * ColumnCuts::kWide + block.thread() % ColumnCuts::kWide;
    sum.a += all[at];
    sum.b += all[kThreads + at];
  }
  block.sync();
  return sum;
}

// partial [2, samples, parts, columns] of terms(sample, row, column), a TwoSums.
template <class Terms>
struct ColumnSums : Cooperative {
  ColumnCuts cuts;
  Terms terms;
  Ptr<double> partial;
  TS_DEVICE void operator()(const Block& block) const {
    const ColumnPlace p(cuts, block);
    TwoSums sum;
    for (std::int64_t r = p.first; p.inside && r < p.last; r += ColumnCuts::kLanes) {
      const TwoSums t = terms(p.sample, r, p.column);
      sum.a += t.a;
      sum.b += t.b;
    }
    sum = sum_lanes(block, sum);
    if (!p.inside || block.thread() >= ColumnCuts::kWide) return;
    partial[p.number(cuts)] = sum.a;
    partial[cuts.numbers() + p.number(cuts)] = sum.b;
  }
};

// The parts of one matrix added up in order: each of the two sums of a column where it is wanted (null: not).
template <class T>
struct JoinColumns : Independent {
  ColumnCuts cuts;
  Ptr<const double> partial;
  Ptr<T> a;
  Ptr<T> b;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t c = global_thread(block);
    if (c >= cuts.columns) return;
    TwoSums sum;
    for (std::int64_t k = 0; k < cuts.parts; ++k) {
      sum.a += partial[k * cuts.columns + c];
      sum.b += partial[cuts.numbers() + k * cuts.columns + c];
    }
    if (a) a[c] = convert<T>(static_cast<Wide<T>>(sum.a));
    if (b) b[c] = convert<T>(static_cast<Wide<T>>(sum.b));
  }
};

}  // namespace tessera::cuda
