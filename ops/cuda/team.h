// Who works on a row of numbers: the threads of a block together, or each thread on a row of its own. Kernels
// over rows are written once, for either.
//
//   template <class Team, class T>
//   struct RowSums : Team::Kind {
//     TS_DEVICE void operator()(const Block& block) const {
//       const Team team(block);
//       if (team.row() >= rows) return;
//       double sum = 0;
//       for (std::int64_t i = team.first(); i < n; i += team.step()) sum += ...;
//       sum = team.reduce(sum, Plus<double>());
//       if (team.writes()) out[team.row()] = sum;
//     }
//   };
//   for_team(alone, [&](auto team) { launch(RowSums<decltype(team), T>{...}, shape_for(team, rows, n),
//   stream); });
#pragma once
#include "runtime/cuda/block_reduce.h"

namespace tessera::cuda {

// A block a row. There are as many blocks as rows, so that none returns before the others.
class Together {
 public:
  using Kind = Cooperative;
  Together() = default;
  TS_DEVICE explicit Together(const Block& block) : block_(&block) {}
  TS_DEVICE std::int64_t row() const { return block_->index(); }
  TS_DEVICE std::int64_t first() const { return block_->thread(); }
  TS_DEVICE std::int64_t step() const { return block_->threads(); }
  TS_DEVICE bool writes() const { return block_->thread() == 0; }
  template <class A, class F>
  TS_DEVICE A reduce(A value, F combine) const {
    return block_reduce(*block_, value, combine);
  }

 private:
  const Block* block_ = nullptr;
};

// A thread a row: where neighbouring rows lie side by side in memory, or are short.
class Alone {
 public:
  using Kind = Independent;
  Alone() = default;
  TS_DEVICE explicit Alone(const Block& block) : row_(global_thread(block)) {}
  TS_DEVICE std::int64_t row() const { return row_; }
  TS_DEVICE std::int64_t first() const { return 0; }
  TS_DEVICE std::int64_t step() const { return 1; }
  TS_DEVICE bool writes() const { return true; }
  template <class A, class F>
  TS_DEVICE A reduce(A value, F) const {
    return value;
  }

 private:
  std::int64_t row_ = 0;
};

inline LaunchShape shape_for(Together, std::int64_t rows, std::int64_t n) {
  return {rows, threads_for_row(n), kReduceBytes};
}
inline LaunchShape shape_for(Alone, std::int64_t rows, std::int64_t) { return one_each(rows, 128); }

// `side_by_side`: neighbouring rows are neighbours in memory, so that threads that each take one read what
// lies together.
inline bool works_alone(std::int64_t rows, std::int64_t n, bool side_by_side) {
  return n <= 8 || (side_by_side && (rows >= 4096 || n <= 64));
}
template <class F>
void for_team(bool alone, F&& f) {
  if (alone) {
    f(Alone());
  } else {
    f(Together());
  }
}

// The larger number; a NaN is passed over as long as the first value is none.
template <class A>
struct LargerNumber {
  TS_DEVICE A operator()(A a, A b) const { return b > a ? b : a; }
};

}  // namespace tessera::cuda
