#include "ops/cpu/norm_eps.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/row_kernels.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

template <class W, class T>
TS_DEVICE W element_or_one(const Ptr<const T>& weight, std::int64_t i) {
  return weight ? static_cast<W>(load(weight[i])) : W(1);
}

// As on the CPU: deviations from a first mean; their sum corrects it.
template <class Team, class T>
struct LayerNormRow : Team::Kind {
  std::int64_t rows;
  std::int64_t n;
  Ptr<T> y;
  Ptr<Wide<T>> mean;
  Ptr<Wide<T>> rstd;
  Ptr<const T> x;
  Ptr<const T> weight;
  Ptr<const T> bias;
  double eps;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= rows) return;
    const Ptr<const T> row = x + team.row() * n;
    const double count = static_cast<double>(n);
    double sum = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step()) sum += static_cast<double>(load(row[i]));
    const W middle = static_cast<W>(team.reduce(sum, Plus<double>()) / count);
    double rest = 0;
    double squares = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W d = load(row[i]) - middle;
      rest += static_cast<double>(d);
      squares += static_cast<double>(d) * static_cast<double>(d);
    }
    rest = team.reduce(rest, Plus<double>()) / count;
    squares = team.reduce(squares, Plus<double>()) / count;
    const W left = static_cast<W>(rest);
    const W var = static_cast<W>(squares - rest * rest);
    const W scale = W(1) / math::vsqrt((var < W(0) ? W(0) : var) + static_cast<W>(eps));
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      W v = ((load(row[i]) - middle) - left) * scale;
      if (weight) v *= load(weight[i]);
      if (bias) v += load(bias[i]);
      y[team.row() * n + i] = convert<T>(v);
    }
    if (!team.writes()) return;
    if (mean) mean[team.row()] = middle + left;
    if (rstd) rstd[team.row()] = scale;
  }
};

// xh = (x - mean) rstd, g = dy weight: dx = rstd (g - mean(g) - xh mean(g xh)). left: what the mean is off by
// as a number of its type, which the deviations add up to. Either may be null.
template <class Team, class T>
struct LayerNormGradientRow : Team::Kind {
  std::int64_t rows;
  std::int64_t n;
  Ptr<T> dx;
  Ptr<const T> dy;
  Ptr<const T> x;
  Ptr<const T> weight;
  Ptr<const Wide<T>> mean;
  Ptr<const Wide<T>> rstd;
  Ptr<Wide<T>> left;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= rows) return;
    const std::int64_t at = team.row() * n;
    const double count = static_cast<double>(n);
    const W middle = mean[team.row()];
    const W scale = rstd[team.row()];
    double sum = 0;
    double product = 0;
    double rest = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W g = load(dy[at + i]) * element_or_one<W>(weight, i);
      const W d = load(x[at + i]) - middle;
      sum += static_cast<double>(g);
      product += static_cast<double>(g * d);
      rest += static_cast<double>(d);
    }
    rest = team.reduce(rest, Plus<double>()) / count;
    if (!cpu::mean_is_rough(middle, scale)) rest = 0;
    if (left && team.writes()) left[team.row()] = static_cast<W>(rest);
    if (!dx) return;
    sum = team.reduce(sum, Plus<double>());
    product = team.reduce(product, Plus<double>()) - rest * sum;
    const W off = static_cast<W>(rest);
    const W mean_g = static_cast<W>(sum / count);
    const W slope = static_cast<W>(product / count) * scale * scale;
    for (std::int64_t i = team.first(); i < n; i += team.step()) {
      const W g = load(dy[at + i]) * element_or_one<W>(weight, i);
      // Of one element exactly nothing, or NaN.
      const W away = (load(x[at + i]) - middle) - off;
      const W d = n == 1 ? (mean_g - mean_g) + away * scale * W(0) : scale * (g - mean_g - away * slope);
      dx[at + i] = convert<T>(d);
    }
  }
};

// What an element adds to the gradients of weight and bias; mean null: of rms norm.
template <class T>
struct ParameterTerms {
  std::int64_t cols;
  Ptr<const T> dy;
  Ptr<const T> x;
  Ptr<const Wide<T>> mean;
  Ptr<const Wide<T>> left;  // null: not asked for
  Ptr<const Wide<T>> rstd;
  TS_DEVICE TwoSums operator()(std::int64_t, std::int64_t row, std::int64_t column) const {
    using W = Wide<T>;
    const W g = load(dy[row * cols + column]);
    W v = load(x[row * cols + column]) - (mean ? mean[row] : W(0));
    if (left) v -= left[row];
    return {static_cast<double>(g * (v * rstd[row])), static_cast<double>(g)};
  }
};

template <class T>
void parameter_gradients(const NormBackwardRows& b, StreamHandle stream) {
  if (b.dweight == nullptr && b.dbias == nullptr) return;
  using W = Wide<T>;
  const ParameterTerms<T> terms{b.sizes.cols,
                                static_cast<const T*>(b.dy),
                                static_cast<const T*>(b.x),
                                static_cast<const W*>(b.mean),
                                static_cast<const W*>(b.left),
                                static_cast<const W*>(b.rstd)};
  launch(ColumnSums<ParameterTerms<T>>{{}, b.cuts, terms, b.partial}, shape_for(b.cuts), stream);
  launch(JoinColumns<T>{{}, b.cuts, b.partial, static_cast<T*>(b.dweight), static_cast<T*>(b.dbias)},
         one_each(b.cuts.columns), stream);
}

template <class Team, class T>
struct DotRow : Team::Kind {
  std::int64_t rows;
  std::int64_t n;
  Ptr<Wide<T>> out;
  Ptr<const T> dy;  // null: x
  Ptr<const T> x;
  Ptr<const T> weight;
  TS_DEVICE double term(std::int64_t at, std::int64_t i) const {
    const Wide<T> v = load(x[at + i]);
    if (!dy) return static_cast<double>(v) * static_cast<double>(v);
    return static_cast<double>(load(dy[at + i]) * element_or_one<Wide<T>>(weight, i)) *
           static_cast<double>(v);
  }
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    if (team.row() >= rows) return;
    double sum = 0;
    for (std::int64_t i = team.first(); i < n; i += team.step()) sum += term(team.row() * n, i);
    sum = team.reduce(sum, Plus<double>());
    if (team.writes()) out[team.row()] = static_cast<Wide<T>>(sum);
  }
};

template <class Team, class T>
struct RmsNormRow : Team::Kind {
  std::int64_t rows;
  std::int64_t n;
  Ptr<T> y;
  Ptr<Wide<T>> rstd;
  Ptr<const T> x;
  Ptr<const T> weight;
  Ptr<const Wide<T>> squares;
  double count;
  double eps;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= rows) return;
    const std::int64_t at = team.row() * n;
    double sum = 0;
    for (std::int64_t i = team.first(); !squares && i < n; i += team.step()) {
      const auto v = static_cast<double>(load(x[at + i]));
      sum += v * v;
    }
    sum = team.reduce(sum, Plus<double>());
    const W all = squares ? squares[team.row()] : static_cast<W>(sum);
    const W scale = static_cast<W>(1.0 / math::vsqrt(static_cast<double>(all) / count + eps));
    for (std::int64_t i = team.first(); i < n; i += team.step())
      y[at + i] = convert<T>(load(x[at + i]) * scale * element_or_one<W>(weight, i));
    if (team.writes()) rstd[team.row()] = scale;
  }
};

template <class Team, class T>
struct RmsNormGradientRow : Team::Kind {
  DotRow<Team, T> dot;  // of dy, weight and x
  Ptr<T> dx;
  Ptr<const Wide<T>> rstd;
  Ptr<const Wide<T>> dots;
  double count;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const Team team(block);
    if (team.row() >= dot.rows) return;
    const std::int64_t at = team.row() * dot.n;
    double sum = 0;
    for (std::int64_t i = team.first(); !dots && i < dot.n; i += team.step()) sum += dot.term(at, i);
    sum = team.reduce(sum, Plus<double>());
    const double all = static_cast<double>(dots ? dots[team.row()] : static_cast<W>(sum));
    const W scale = rstd[team.row()];
    const auto r = static_cast<double>(scale);
    const W slope = static_cast<W>(r * r * r * all / count);
    for (std::int64_t i = team.first(); i < dot.n; i += team.step()) {
      const W g = load(dot.dy[at + i]) * element_or_one<W>(dot.weight, i);
      dx[at + i] = convert<T>(scale * g - slope * load(dot.x[at + i]));
    }
  }
};

// f(tag of the type, team) for rows that lie one after another.
template <class F>
void for_rows(const RowSizes& s, F&& f) {
  dispatch_floating(s.dtype, [&](auto tag) {
    for_team(works_alone(s.rows, s.cols, false), [&](auto team) { f(tag, team); });
  });
}

template <class Team, class T>
DotRow<Team, T> dot_of(const RowSizes& s, void* out, const void* dy, const void* x, const void* weight) {
  return {{},
          s.rows,
          s.cols,
          static_cast<Wide<T>*>(out),
          static_cast<const T*>(dy),
          static_cast<const T*>(x),
          static_cast<const T*>(weight)};
}

}  // namespace

void layer_norm_rows(const LayerNormRows& a, StreamHandle stream) {
  for_rows(a.sizes, [&](auto tag, auto team) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    launch(LayerNormRow<decltype(team), T>{{},
                                           a.sizes.rows,
                                           a.sizes.cols,
                                           static_cast<T*>(a.y),
                                           static_cast<W*>(a.mean),
                                           static_cast<W*>(a.rstd),
                                           static_cast<const T*>(a.x),
                                           static_cast<const T*>(a.weight),
                                           static_cast<const T*>(a.bias),
                                           a.eps},
           shape_for(team, a.sizes.rows, a.sizes.cols), stream);
  });
}

void layer_norm_backward_rows(const NormBackwardRows& b, StreamHandle stream) {
  for_rows(b.sizes, [&](auto tag, auto team) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    if (b.sizes.rows == 0 || (b.dx == nullptr && b.left == nullptr)) return;
    launch(LayerNormGradientRow<decltype(team), T>{{},
                                                   b.sizes.rows,
                                                   b.sizes.cols,
                                                   static_cast<T*>(b.dx),
                                                   static_cast<const T*>(b.dy),
                                                   static_cast<const T*>(b.x),
                                                   static_cast<const T*>(b.weight),
                                                   static_cast<const W*>(b.mean),
                                                   static_cast<const W*>(b.rstd),
                                                   static_cast<W*>(b.left)},
           shape_for(team, b.sizes.rows, b.sizes.cols), stream);
  });
  dispatch_floating(b.sizes.dtype,
                    [&](auto tag) { parameter_gradients<typename decltype(tag)::type>(b, stream); });
}

void rms_norm_backward_rows(const NormBackwardRows& b, StreamHandle stream) {
  dispatch_floating(b.sizes.dtype,
                    [&](auto tag) { parameter_gradients<typename decltype(tag)::type>(b, stream); });
  if (b.dx == nullptr) return;
  for_rows(b.sizes, [&](auto tag, auto team) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    using Team = decltype(team);
    launch(RmsNormGradientRow<Team, T>{{},
                                       dot_of<Team, T>(b.sizes, nullptr, b.dy, b.x, b.weight),
                                       static_cast<T*>(b.dx),
                                       static_cast<const W*>(b.rstd),
                                       static_cast<const W*>(b.dots),
                                       b.count},
           shape_for(team, b.sizes.rows, b.sizes.cols), stream);
  });
}

void row_dots(const RowDots& d, StreamHandle stream) {
  for_rows(d.sizes, [&](auto tag, auto team) {
    using T = typename decltype(tag)::type;
    launch(dot_of<decltype(team), T>(d.sizes, d.out, d.dy, d.x, d.weight),
           shape_for(team, d.sizes.rows, d.sizes.cols), stream);
  });
}

void rms_norm_rows(const RmsNormRows& r, StreamHandle stream) {
  for_rows(r.sizes, [&](auto tag, auto team) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    launch(RmsNormRow<decltype(team), T>{{},
                                         r.sizes.rows,
                                         r.sizes.cols,
                                         static_cast<T*>(r.y),
                                         static_cast<W*>(r.rstd),
                                         static_cast<const T*>(r.x),
                                         static_cast<const T*>(r.weight),
                                         static_cast<const W*>(r.squares),
                                         r.count,
                                         r.eps},
           shape_for(team, r.sizes.rows, r.sizes.cols), stream);
  });
}

}  // namespace tessera::cuda
