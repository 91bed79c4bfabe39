#include <limits>

#include "ops/cuda/device_math.h"
#include "ops/cuda/row_kernels.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class Team, class T>
struct SoftmaxRow : Team::Kind {
  Walk<3> rows;
  std::int64_t n;
  std::int64_t out_along;
  std::int64_t along;
  Ptr<T> out;
  Ptr<const T> x;
  bool log;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= rows.numel) return;
    std::int64_t at[3];
    rows.offsets(team.row(), at);
    W top = -std::numeric_limits<W>::infinity();
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W v = load(x[at[1] + i * along]);
      top = v > top ? v : top;
    }
    top = team.reduce(top, LargerNumber<W>());
    double sum = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step())
      sum += static_cast<double>(math::vexp_flushed(load(x[at[1] + i * along]) - top));
    sum = team.reduce(sum, Plus<double>());
    const W log_sum = log ? math::vlog(static_cast<W>(sum)) : W(0);
    const W scale = W(1) / static_cast<W>(sum);
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W v = load(x[at[1] + i * along]) - top;
      out[at[0] + i * out_along] = convert<T>(log ? v - log_sum : math::vexp_flushed(v) * scale);
    }
  }
};

template <class Team, class T>
struct SoftmaxBackwardRow : Team::Kind {
  Walk<3> rows;
  std::int64_t n;
  std::int64_t dx_along;
  std::int64_t dy_along;
  std::int64_t y_along;
  Ptr<T> dx;
  Ptr<const T> dy;
  Ptr<const T> y;
  bool log;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= rows.numel) return;
    std::int64_t at[3];
    rows.offsets(team.row(), at);
    double sum = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W g = load(dy[at[1] + i * dy_along]);
      sum += static_cast<double>(log ? g : g * load(y[at[2] + i * y_along]));
    }
    const W all = static_cast<W>(team.reduce(sum, Plus<double>()));
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W g = load(dy[at[1] + i * dy_along]);
      const W v = load(y[at[2] + i * y_along]);
      dx[at[0] + i * dx_along] = convert<T>(log ? g - math::vexp(v) * all : v * (g - all));
    }
  }
};

template <class Team, class T>
struct ExpRow : Team::Kind {
  std::int64_t rows;
  std::int64_t n;
  Ptr<T> max;
  Ptr<T> shift;
  Ptr<T> sum;
  Ptr<const T> x;
  bool sums_infinity;
  TS_DEVICE void operator()(const Block& block) const {
    constexpr T kInf = std::numeric_limits<T>::infinity();
    const Team team(block);
    if (team.row() >= rows) return;
    const Ptr<const T> row = x + team.row() * n;
    T top = -kInf;
    for (std::int64_t i = team.first(); i < n; i += team.step()) top = row[i] > top ? row[i] : top;
    top = team.reduce(top, LargerNumber<T>());
    const T base = top == -kInf || (sums_infinity && top == kInf) ? T(0) : top;
    double total = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step())
      total += static_cast<double>(math::vexp_flushed(row[i] - base));
    total = team.reduce(total, Plus<double>());
    if (!team.writes()) return;
    max[team.row()] = top;
    shift[team.row()] = base;
    sum[team.row()] = static_cast<T>(total);
  }
};

// Whether neighbouring rows of the operand that is read are neighbours in memory.
bool side_by_side(const RowElements& r) {
  return r.along[1] != 1 && r.rows.dims > 0 && (r.rows.stride[1][0] == 1 || r.rows.stride[0][0] == 1);
}

template <class T>
void launch_exp(const ExpRows& e, StreamHandle stream) {
  const RowSizes& s = e.sizes;
  for_team(works_alone(s.rows, s.cols, false), [&](auto team) {
    launch(ExpRow<decltype(team), T>{{},
                                     s.rows,
                                     s.cols,
                                     static_cast<T*>(e.max),
                                     static_cast<T*>(e.shift),
                                     static_cast<T*>(e.sum),
                                     static_cast<const T*>(e.x),
                                     e.sums_infinity},
           shape_for(team, s.rows, s.cols), stream);
  });
}

}  // namespace

void softmax_rows(const RowElements& r, bool log, StreamHandle stream) {
  dispatch_floating(r.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(r.rows.numel, r.n, side_by_side(r)), [&](auto team) {
      launch(SoftmaxRow<decltype(team), T>{{},
                                           r.rows,
                                           r.n,
                                           r.along[0],
                                           r.along[1],
                                           static_cast<T*>(r.out.data),
                                           static_cast<const T*>(r.a.data),
                                           log},
             shape_for(team, r.rows.numel, r.n), stream);
    });
  });
}

void softmax_backward_rows(const RowElements& r, bool log, StreamHandle stream) {
  dispatch_floating(r.out.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    for_team(works_alone(r.rows.numel, r.n, side_by_side(r)), [&](auto team) {
      launch(SoftmaxBackwardRow<decltype(team), T>{{},
                                                   r.rows,
                                                   r.n,
                                                   r.along[0],
                                                   r.along[1],
                                                   r.along[2],
                                                   static_cast<T*>(r.out.data),
                                                   static_cast<const T*>(r.a.data),
                                                   static_cast<const T*>(r.b.data),
                                                   log},
             shape_for(team, r.rows.numel, r.n), stream);
    });
  });
}

void exp_rows(const ExpRows& args, StreamHandle stream) {
  if (args.sizes.dtype == DType::F64) return launch_exp<double>(args, stream);
  launch_exp<float>(args, stream);
}

}  // namespace tessera::cuda
