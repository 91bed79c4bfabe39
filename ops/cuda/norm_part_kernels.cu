#include "ops/cuda/columns.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/row_kernels.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// Parts of rows: their means have more digits than float holds.
template <class T>
struct PartRows {
  std::int64_t rows;
  std::int64_t n;
  Ptr<const T> dy;
  Ptr<const T> x;
  Ptr<const double> mean;
  Ptr<const Wide<T>> rstd;
  Ptr<const T> weight;
  TS_DEVICE Wide<T> dy_of(std::int64_t row, std::int64_t i) const { return load(dy[row * n + i]); }
  TS_DEVICE Wide<T> weighted(std::int64_t row, std::int64_t i) const {
    return weight ? dy_of(row, i) * static_cast<Wide<T>>(load(weight[i])) : dy_of(row, i);
  }
  TS_DEVICE Wide<T> normal(std::int64_t row, std::int64_t i) const {
    using W = Wide<T>;
    const W head = static_cast<W>(mean[row]);
    const W rest = static_cast<W>(mean[row] - static_cast<double>(head));
    return (load(x[row * n + i]) - head) * rstd[row] + -rest * rstd[row];
  }
};

template <class Team, class T>
struct PartSums : Team::Kind {
  PartRows<T> p;
  Ptr<Wide<T>> sums;
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    if (team.row() >= p.rows) return;
    double sum = 0;
    double product = 0;
    for (std::int64_t i = team.first(); i < p.n; i += team.step()) {
      const Wide<T> g = p.weighted(team.row(), i);
      sum += static_cast<double>(g);
      product += static_cast<double>(g * p.normal(team.row(), i));
    }
    sum = team.reduce(sum, Plus<double>());
    product = team.reduce(product, Plus<double>());
    if (!team.writes()) return;
    sums[team.row()] = static_cast<Wide<T>>(sum);
    sums[p.rows + team.row()] = static_cast<Wide<T>>(product);
  }
};

template <class T>
struct PartGradient : Independent {
  PartRows<T> p;
  Ptr<T> dx;
  Ptr<const Wide<T>> sums;
  double count;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const std::int64_t at = global_thread(block);
    if (at >= p.rows * p.n) return;
    const std::int64_t row = at / p.n;
    const std::int64_t i = at - row * p.n;
    const W g = p.weighted(row, i);
    // Of one element exactly nothing, or NaN.
    if (count == 1) {
      dx[at] = convert<T>((g - g) + p.normal(row, i) * W(0));
      return;
    }
    const double per = static_cast<double>(p.rstd[row]) / count;
    const W slope = static_cast<W>(-per * static_cast<double>(sums[p.rows + row]));
    const W shift = static_cast<W>(-per * static_cast<double>(sums[row]));
    dx[at] = convert<T>(p.rstd[row] * g + (slope * p.normal(row, i) + shift));
  }
};

template <class T>
struct PartParameters {
  PartRows<T> p;
  TS_DEVICE TwoSums operator()(std::int64_t, std::int64_t row, std::int64_t column) const {
    const Wide<T> g = p.dy_of(row, column);
    return {static_cast<double>(g * p.normal(row, column)), static_cast<double>(g)};
  }
};

template <class T>
PartRows<T> part_of(const NormPartRows& n) {
  return {n.sizes.rows,
          n.sizes.cols,
          static_cast<const T*>(n.dy),
          static_cast<const T*>(n.x),
          n.mean,
          static_cast<const Wide<T>*>(n.rstd),
          static_cast<const T*>(n.weight)};
}

}  // namespace

void layer_norm_part_sums(const NormPartRows& n, StreamHandle stream) {
  const RowSizes& s = n.sizes;
  dispatch_floating(s.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(s.rows, s.cols, false), [&](auto team) {
      launch(PartSums<decltype(team), T>{{}, part_of<T>(n), static_cast<Wide<T>*>(n.sums)},
             shape_for(team, s.rows, s.cols), stream);
    });
  });
}

void layer_norm_part_gradient(const NormPartRows& n, StreamHandle stream) {
  dispatch_floating(n.sizes.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const PartRows<T> part = part_of<T>(n);
    if (n.dx != nullptr)
      launch(PartGradient<T>{{}, part, static_cast<T*>(n.dx), static_cast<const Wide<T>*>(n.sums), n.count},
             one_each(n.sizes.rows * n.sizes.cols), stream);
    if (n.dweight == nullptr && n.dbias == nullptr) return;
    launch(ColumnSums<PartParameters<T>>{{}, n.cuts, {part}, n.partial}, shape_for(n.cuts), stream);
    launch(JoinColumns<T>{{}, n.cuts, n.partial, static_cast<T*>(n.dweight), static_cast<T*>(n.dbias)},
           one_each(n.cuts.columns), stream);
  });
}

}  // namespace tessera::cuda
