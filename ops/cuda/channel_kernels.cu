#include "ops/cuda/channel_kernels.h"

#include "ops/cuda/activation.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/device_math.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

using cpu::NormActivation;

// The forward pass and the gradient of one channel:
//   y = (x - mean) scale + shift,  dx = factor dy + slope (x - mean) + rest
template <class W>
struct Mapping {
  Ptr<W> numbers;  // [7, all]
  std::int64_t all;
  TS_DEVICE W mean(std::int64_t i) const { return numbers[i]; }
  TS_DEVICE W normalized(std::int64_t i, W x) const {
    return (x - numbers[i]) * numbers[all + i] + numbers[2 * all + i];
  }
  TS_DEVICE W gradient(std::int64_t i, W dy, W x) const {
    return numbers[3 * all + i] * dy +
           (numbers[5 * all + i] * (x - numbers[4 * all + i]) + numbers[6 * all + i]);
  }
  // Where the statistics were given: x, which may be infinite, plays no part.
  TS_DEVICE W gradient(std::int64_t i, W dy) const { return numbers[3 * all + i] * dy; }
};

// Statistics of a row: what a channel's numbers are made from.
template <class W>
struct Statistics {
  Ptr<const W> stats;  // [4, rows]
  std::int64_t rows;
  cpu::NormEps eps;
  TS_DEVICE double rest(std::int64_t row) const { return static_cast<double>(stats[rows + row]); }
  TS_DEVICE double rstd(std::int64_t row) const {
    return 1.0 / math::vsqrt(eps.template beside_variance<W>(stats, rows, row));
  }
  TS_DEVICE double count(std::int64_t row) const { return static_cast<double>(stats[3 * rows + row]); }
};
template <class W>
Statistics<W> statistics_of(const ChannelData& d, const ChannelNumbers& n) {
  return {static_cast<const W*>(n.stats), d.statistics(), n.eps};
}

template <class T>
struct WorkOutNumbers : Independent {
  ChannelData data;
  Statistics<Wide<T>> s;
  Ptr<const T> weight;
  Ptr<const T> bias;
  Ptr<const Wide<T>> sums;
  Mapping<Wide<T>> to;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const std::int64_t i = global_thread(block);
    if (i >= to.all) return;
    const std::int64_t c = i % data.channels;
    const std::int64_t row = i / data.channels * data.groups + data.group(c);
    const double rstd = s.rstd(row);
    const double scale = rstd * (weight ? static_cast<double>(load(weight[c])) : 1.0);
    const double offset = bias ? static_cast<double>(load(bias[c])) : 0.0;
    put(i, 0, s.stats[row], scale, offset - s.rest(row) * scale);
    if (!sums) return put(i, 3, static_cast<W>(scale), 0, 0, 0);
    const double count = s.count(row);
    // Of one element nothing, exactly: not what rounding leaves of it. NaN where rstd is infinite.
    if (count == 1) return put(i, 3, W(0), static_cast<double>(s.stats[row]), 0, 0.0 * rstd);
    const double per = rstd / count;
    const double slope = -rstd * per * static_cast<double>(sums[s.rows + row]);
    const double rest = -per * static_cast<double>(sums[row]) - slope * s.rest(row);
    put(i, 3, static_cast<W>(scale), static_cast<double>(s.stats[row]), slope, rest);
  }
  template <class... More>
  TS_DEVICE void put(std::int64_t i, int term, Wide<T> first, More... more) const {
    to.numbers[term * to.all + i] = first;
    int t = term;
    ((to.numbers[++t * to.all + i] = static_cast<Wide<T>>(more)), ...);
  }
};

template <class T>
Mapping<Wide<T>> work_out(const ChannelData& d, const ChannelNumbers& n, StreamHandle stream) {
  using W = Wide<T>;
  const Mapping<W> to{static_cast<W*>(n.numbers), d.sets() * d.channels};
  launch(WorkOutNumbers<T>{{},
                           d,
                           statistics_of<W>(d, n),
                           static_cast<const T*>(n.weight),
                           static_cast<const T*>(n.bias),
                           static_cast<const W*>(n.sums),
                           to},
         one_each(to.all), stream);
  return to;
}

// Where an element lies, and which numbers are its channel's.
struct Place {
  std::int64_t sample, inside, number;
  TS_DEVICE Place(const ChannelData& d, std::int64_t i) {
    sample = divide(i, d.sample_size());
    inside = i - sample * d.sample_size();
    const std::int64_t by = d.innermost ? d.channels : d.row;
    const std::int64_t q = divide(inside, by);
    number = (d.per_sample ? sample * d.channels : 0) + (d.innermost ? inside - q * by : q);
  }
  TS_DEVICE static std::int64_t divide(std::int64_t a, std::int64_t b) {
    if (((a | b) >> 32) == 0) return static_cast<std::uint32_t>(a) / static_cast<std::uint32_t>(b);
    return a / b;
  }
};

template <class T>
struct Operand {
  Ptr<T> data;
  std::int64_t step;
  explicit Operand(const ChannelOperand& o) : data(static_cast<T*>(o.data)), step(o.step) {}
  TS_DEVICE T& at(const Place& p) const { return data[p.sample * step + p.inside]; }
};

template <class T>
struct Normalize : Independent {
  ChannelData data;
  Mapping<Wide<T>> map;
  NormActivation activation;
  Operand<T> y;
  Operand<const T> x;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= data.numel()) return;
    const Place p(data, i);
    y.at(p) = convert<T>(activated(activation, map.normalized(p.number, load(x.at(p)))));
  }
};

template <class T>
struct ChannelGradient : Independent {
  ChannelData data;
  Mapping<Wide<T>> map;
  NormActivation activation;
  bool given;  // statistics
  Operand<T> dx;
  Operand<const T> dy;
  Operand<const T> x;
  TS_DEVICE void operator()(const Block& block) const {
    using W = Wide<T>;
    const std::int64_t i = global_thread(block);
    if (i >= data.numel()) return;
    const Place p(data, i);
    W g = load(dy.at(p));
    const W v = load(x.at(p));
    if (activation != NormActivation::None)
      g = activation_gradient(activation, g, map.normalized(p.number, v));
    dx.at(p) = convert<T>(given ? map.gradient(p.number, g) : map.gradient(p.number, g, v));
  }
};

// ---- sums

// What one element adds to its channel's sums of dy and of dy (x - mean).
template <class T>
struct ChannelTerms {
  Mapping<Wide<T>> map;
  NormActivation activation;
  TS_DEVICE TwoSums of(std::int64_t number, Wide<T> g, Wide<T> v) const {
    if (activation != NormActivation::None) g = activation_gradient(activation, g, map.normalized(number, v));
    return {static_cast<double>(g), static_cast<double>(g * (v - map.mean(number)))};
  }
};

template <class T>
struct ColumnTerms {
  ChannelTerms<T> terms;
  std::int64_t columns;
  std::int64_t spread;
  std::int64_t channels;  // from one sample's numbers to the next; 0: they are shared
  Operand<const T> dy;
  Operand<const T> x;
  TS_DEVICE TwoSums operator()(std::int64_t sample, std::int64_t row, std::int64_t column) const {
    const std::int64_t at = row * columns + column;
    return terms.of(sample * channels + column / spread, load(dy.data[sample * dy.step + at]),
                    load(x.data[sample * x.step + at]));
  }
};

// partial [2, samples, pieces, channels], of pieces of every channel's row.
template <class Team, class T>
struct RowSums : Team::Kind {
  ChannelData data;
  ChannelTerms<T> terms;
  std::int64_t pieces;
  Operand<const T> dy;
  Operand<const T> x;
  Ptr<double> partial;
  TS_DEVICE void operator()(const Block& block) const {
    const Team team(block);
    const std::int64_t all = data.samples * pieces * data.channels;
    if (team.row() >= all) return;
    const std::int64_t c = team.row() % data.channels;
    const std::int64_t piece = team.row() / data.channels % pieces;
    const std::int64_t sample = team.row() / data.channels / pieces;
    const std::int64_t number = (data.per_sample ? sample * data.channels : 0) + c;
    const std::int64_t first = piece * ChannelCuts::kPiece;
    const std::int64_t last = first + ChannelCuts::kPiece < data.row ? first + ChannelCuts::kPiece : data.row;
    const Ptr<const T> g = dy.data + (sample * dy.step + c * data.row);
    const Ptr<const T> v = x.data + (sample * x.step + c * data.row);
    TwoSums sum;
    for (std::int64_t i = first + team.first(); i < last; i += team.step()) {
      const TwoSums t = terms.of(number, load(g[i]), load(v[i]));
      sum.a += t.a;
      sum.b += t.b;
    }
    sum.a = team.reduce(sum.a, Plus<double>());
    sum.b = team.reduce(sum.b, Plus<double>());
    if (!team.writes()) return;
    partial[team.row()] = sum.a;
    partial[all + team.row()] = sum.b;
  }
};

// local [2, shares, channels]: `outer` parts of every share, `spread` columns of every channel.
struct JoinSums : Independent {
  std::int64_t shares;
  std::int64_t channels;
  std::int64_t outer;
  std::int64_t spread;
  Ptr<const double> partial;
  Ptr<double> local;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t i = global_thread(block);
    if (i >= shares * channels) return;
    const std::int64_t share = i / channels;
    const std::int64_t c = i % channels;
    const std::int64_t all = shares * outer * channels * spread;
    TwoSums sum;
    for (std::int64_t o = 0; o < outer; ++o)
      for (std::int64_t k = 0; k < spread; ++k) {
        const std::int64_t at = ((share * outer + o) * channels + c) * spread + k;
        sum.a += partial[at];
        sum.b += partial[all + at];
      }
    local[i] = sum.a;
    local[shares * channels + i] = sum.b;
  }
};

// Of one share and channel: the sums of dy and of dy x^.
template <class W>
struct LocalSums {
  ChannelData data;
  Statistics<W> s;
  Ptr<const double> local;
  std::int64_t shares;
  TS_DEVICE TwoSums of(std::int64_t share, std::int64_t c) const {
    const std::int64_t row = (data.per_sample ? share * data.groups : 0) + data.group(c);
    const double g = local[share * data.channels + c];
    const double product = local[(shares + share) * data.channels + c];
    return {g, (product - s.rest(row) * g) * s.rstd(row)};
  }
};

template <class T>
struct ParameterSums : Cooperative {
  LocalSums<Wide<T>> sums;
  Ptr<T> dweight;
  Ptr<T> dbias;
  TS_DEVICE void operator()(const Block& block) const {
    TwoSums sum;
    for (std::int64_t share = block.thread(); share < sums.shares; share += block.threads()) {
      const TwoSums t = sums.of(share, block.index());
      sum.a += t.a;
      sum.b += t.b;
    }
    sum.a = block_reduce(block, sum.a, Plus<double>());
    sum.b = block_reduce(block, sum.b, Plus<double>());
    if (block.thread() != 0) return;
    if (dweight) dweight[block.index()] = convert<T>(static_cast<Wide<T>>(sum.b));
    if (dbias) dbias[block.index()] = convert<T>(static_cast<Wide<T>>(sum.a));
  }
};

// A block a row of statistics.
template <class T>
struct StatisticSums : Cooperative {
  LocalSums<Wide<T>> sums;
  Ptr<const T> weight;
  Ptr<Wide<T>> out;
  TS_DEVICE void operator()(const Block& block) const {
    const ChannelData& d = sums.data;
    const std::int64_t g = block.index() % d.groups;
    const std::int64_t first = d.per_sample ? block.index() / d.groups : 0;
    const std::int64_t shares = d.per_sample ? (sums.shares == 0 ? 0 : 1) : sums.shares;
    const std::int64_t lo = d.lowest(g);
    const std::int64_t n = d.highest(g) - lo;
    TwoSums sum;
    for (std::int64_t i = block.thread(); i < shares * n; i += block.threads()) {
      const std::int64_t c = lo + i % n;
      if (d.group(c) != g) continue;
      const TwoSums t = sums.of(first + i / n, c);
      const double w = weight ? static_cast<double>(load(weight[c])) : 1.0;
      sum.a += w * t.a;
      sum.b += w * t.b;
    }
    sum.a = block_reduce(block, sum.a, Plus<double>());
    sum.b = block_reduce(block, sum.b, Plus<double>());
    if (block.thread() != 0) return;
    out[block.index()] = static_cast<Wide<T>>(sum.a);
    out[d.statistics() + block.index()] = static_cast<Wide<T>>(sum.b);
  }
};

template <class T>
void local_sums(const ChannelSumsOf& a, StreamHandle stream) {
  const ChannelData& d = a.data;
  const ChannelTerms<T> terms{work_out<T>(d, a.numbers, stream), a.numbers.activation};
  const Operand<const T> dy(a.dy);
  const Operand<const T> x(a.x);
  const ChannelCuts& c = a.cuts;
  if (c.by_columns) {
    const ColumnTerms<T> columns{terms, c.columns.columns, c.spread, d.per_sample ? d.channels : 0, dy, x};
    launch(ColumnSums<ColumnTerms<T>>{{}, c.columns, columns, a.partial}, shape_for(c.columns), stream);
  } else {
    const std::int64_t length = d.row < ChannelCuts::kPiece ? d.row : ChannelCuts::kPiece;
    for_team(length <= 8, [&](auto team) {
      launch(RowSums<decltype(team), T>{{}, d, terms, c.pieces, dy, x, a.partial},
             shape_for(team, c.numbers(), length), stream);
    });
  }
  const std::int64_t parts = c.by_columns ? c.columns.samples * c.columns.parts : c.samples * c.pieces;
  launch(JoinSums{{}, a.shares, d.channels, parts / a.shares, c.spread, a.partial, a.local},
         one_each(a.shares * d.channels), stream);
}

}  // namespace

void channel_norm(const ChannelMap& a, StreamHandle stream) {
  dispatch_floating(a.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto map = work_out<T>(a.data, a.numbers, stream);
    launch(Normalize<T>{{}, a.data, map, a.numbers.activation, Operand<T>(a.out), Operand<const T>(a.x)},
           one_each(a.data.numel()), stream);
  });
}

void channel_gradient(const ChannelMap& a, StreamHandle stream) {
  dispatch_floating(a.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto map = work_out<T>(a.data, a.numbers, stream);
    launch(ChannelGradient<T>{{},
                              a.data,
                              map,
                              a.numbers.activation,
                              a.numbers.sums == nullptr,
                              Operand<T>(a.out),
                              Operand<const T>(a.dy),
                              Operand<const T>(a.x)},
           one_each(a.data.numel()), stream);
  });
}

void channel_sums(const ChannelSumsOf& a, StreamHandle stream) {
  dispatch_floating(a.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    using W = Wide<T>;
    if (a.shares > 0) local_sums<T>(a, stream);
    const LocalSums<W> sums{a.data, statistics_of<W>(a.data, a.numbers), a.local, a.shares};
    if (a.dweight != nullptr || a.dbias != nullptr)
      launch(ParameterSums<T>{{}, sums, static_cast<T*>(a.dweight), static_cast<T*>(a.dbias)},
             {a.data.channels, a.shares > 32 ? 256 : 32, kReduceBytes}, stream);
    if (a.sums != nullptr)
      launch(StatisticSums<T>{{}, sums, static_cast<const T*>(a.numbers.weight), static_cast<W*>(a.sums)},
             {a.data.statistics(), 64, kReduceBytes}, stream);
  });
}

}  // namespace tessera::cuda
