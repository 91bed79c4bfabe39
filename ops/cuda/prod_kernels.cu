#include "ops/cpu/row_factors.h"
#include "ops/cuda/reduce_kernels.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

struct Times {
  TS_DEVICE double operator()(double a, double b) const { return a * b; }
};

// What the threads of a team have taken. Their counts, of at most 2 each of at most 256 threads, have ten
// bits.
template <class Team>
TS_DEVICE RowFactors joined(const Team& team, RowFactors f) {
  f.product = team.reduce(f.product, Times());
  const int counts = team.reduce(f.zeros | f.infinities << 10 | f.nans << 20, Plus<int>());
  f.zeros = RowFactors::counted(counts & 1023);
  f.infinities = RowFactors::counted(counts >> 10 & 1023);
  f.nans = RowFactors::counted(counts >> 20);
  return f;
}

template <class Team, class T>
struct ProdGradientRow : Team::Kind {
  Walk<4> rows;
  Walk<2> inner;
  bool whole;
  Ptr<T> dx;
  Ptr<const T> x;
  Ptr<const T> y;
  Ptr<const T> dy;
  Ptr<const std::int64_t> zeros;
  Ptr<const double> rest;
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    if (team.row() >= rows.numel) return;
    std::int64_t row[4];
    rows.offsets(team.row(), row);
    const std::int64_t all_zeros = *zeros;
    RowFactors factors;
    std::int64_t at[2];
    if (all_zeros > 0) {  // for all threads of all blocks
      for (std::int64_t i = team.first(); i < inner.numel; i += team.step()) {
        inner.offsets(i, at);
        factors.take(static_cast<double>(load(x[row[1] + at[1]])));
      }
      factors = joined(team, factors);
      if (rest) factors.take(rest[row[2]]);
    }
    const T product = y[row[2]];
    const T slope = dy[row[3]];
    for (std::int64_t i = team.first(); i < inner.numel; i += team.step()) {
      inner.offsets(i, at);
      dx[row[0] + at[0]] = prod_slope<T>(factors, all_zeros, whole, x[row[1] + at[1]], product, slope);
    }
  }
};

}  // namespace

void prod_gradient_elements(const ProdGradientElements& p, StreamHandle stream) {
  const bool alone = works_alone(p.rows.numel, p.inner.numel, p.side_by_side);
  dispatch_floating(p.dx.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto read = [](const Elements& e) { return static_cast<const T*>(e.data); };
    for_team(alone, [&](auto team) {
      launch(ProdGradientRow<decltype(team), T>{{},
                                                p.rows,
                                                p.inner,
                                                p.whole,
                                                static_cast<T*>(p.dx.data),
                                                read(p.x),
                                                read(p.y),
                                                read(p.dy),
                                                p.zeros,
                                                p.rest},
             shape_for(team, p.rows.numel, p.inner.numel), stream);
    });
  });
}

}  // namespace tessera::cuda
