#include "ops/cpu/running_move.h"
#include "ops/cuda/channel_kernels.h"
#include "ops/cuda/columns.h"
#include "ops/cuda/team.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// Number of elements, mean and squared deviations from it, of every part.
struct Parts {
  Ptr<double> numbers;  // [3, all]
  std::int64_t all;
  TS_DEVICE void put(std::int64_t i, double count, double mean, double squares) const {
    numbers[i] = count;
    numbers[all + i] = mean;
    numbers[2 * all + i] = squares;
  }
};

// A block a piece of a run of memory: the channels of one group, or one channel where groups are scattered.
template <class T>
struct RunMoments : Cooperative {
  ChannelData data;
  ChannelCuts cuts;
  std::int64_t step;
  Ptr<const T> x;
  Parts parts;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t run = block.index() % cuts.runs;
    const std::int64_t piece = block.index() / cuts.runs % cuts.pieces;
    const std::int64_t sample = block.index() / cuts.runs / cuts.pieces;
    const bool channel = data.table != nullptr;
    const std::int64_t from = (channel ? run : data.lowest(run)) * data.row + piece * ChannelCuts::kPiece;
    std::int64_t to = (channel ? run + 1 : data.highest(run)) * data.row;
    to = to < from ? from : to < from + ChannelCuts::kPiece ? to : from + ChannelCuts::kPiece;
    const Ptr<const T> row = x + (sample * step + from);
    const std::int64_t n = to - from;
    double sum = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads())
      sum += static_cast<double>(load(row[i]));
    sum = block_reduce(block, sum, Plus<double>());
    const double mean = n > 0 ? sum / static_cast<double>(n) : 0.0;
    double squares = 0;
    for (std::int64_t i = block.thread(); i < n; i += block.threads()) {
      const double d = static_cast<double>(load(row[i])) - mean;
      squares += d * d;
    }
    squares = block_reduce(block, squares, Plus<double>());
    if (block.thread() == 0) parts.put(block.index(), static_cast<double>(n), mean, squares);
  }
};

template <class T>
struct ColumnMoments : Cooperative {
  ColumnCuts cuts;
  std::int64_t step;
  Ptr<const T> x;
  Parts parts;
  TS_DEVICE void operator()(const Block& block) const {
    const ColumnPlace p(cuts, block);
    const auto count = static_cast<double>(p.last - p.part * cuts.length);
    double sum = 0;
    for (std::int64_t r = p.first; p.inside && r < p.last; r += ColumnCuts::kLanes) sum += value(p, r);
    const double mean = sum_lanes(block, {sum, 0}).a / count;
    double squares = 0;
    for (std::int64_t r = p.first; p.inside && r < p.last; r += ColumnCuts::kLanes) {
      const double d = value(p, r) - mean;
      squares += d * d;
    }
    squares = sum_lanes(block, {squares, 0}).a;
    if (p.inside && block.thread() < ColumnCuts::kWide) parts.put(p.number(cuts), count, mean, squares);
  }
  TS_DEVICE double value(const ColumnPlace& p, std::int64_t r) const {
    return static_cast<double>(load(x[p.sample * step + r * cuts.columns + p.column]));
  }
};

// The parts of every statistic joined around the mean of the whole. W: what statistics are kept in.
template <class W>
struct JoinMoments : Cooperative {
  ChannelData data;
  Parts parts;
  std::int64_t outer;   // parts of a column or run, in the samples of a statistic
  std::int64_t inner;   // columns or runs of a sample
  std::int64_t spread;  // columns of a channel
  bool runs_are_groups;
  Ptr<W> out;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t g = block.index() % data.groups;
    const std::int64_t first = data.per_sample ? block.index() / data.groups * outer : 0;
    const std::int64_t begin = runs_are_groups ? g : data.lowest(g) * spread;
    const std::int64_t n = (runs_are_groups ? g + 1 : data.highest(g) * spread) - begin;
    double count = 0;
    double sum = 0;
    const auto each = [&](auto&& take) {
      for (std::int64_t i = block.thread(); i < outer * n; i += block.threads()) {
        const std::int64_t k = begin + i % n;
        if (!runs_are_groups && data.group(k / spread) != g) continue;
        const std::int64_t at = (first + i / n) * inner + k;
        if (parts.numbers[at] > 0)
          take(parts.numbers[at], parts.numbers[parts.all + at], parts.numbers[2 * parts.all + at]);
      }
    };
    each([&](double own, double mean, double) {
      count += own;
      sum += own * mean;
    });
    count = block_reduce(block, count, Plus<double>());
    sum = block_reduce(block, sum, Plus<double>());
    const double mean = count > 0 ? sum / count : 0.0;
    double m2 = 0;
    each([&](double own, double part_mean, double squares) {
      const double off = part_mean - mean;
      m2 += squares + own * off * off;
    });
    m2 = block_reduce(block, m2, Plus<double>());
    if (block.thread() != 0) return;
    const std::int64_t rows = data.statistics();
    const W head = static_cast<W>(mean);
    const bool finite = mean - mean == 0;
    out[block.index()] = head;
    out[rows + block.index()] = finite ? static_cast<W>(mean - static_cast<double>(head)) : W(0);
    out[2 * rows + block.index()] = static_cast<W>(m2);
  }
};

template <class R, class V>
struct MoveRunning : Independent {
  RunningStatistic r;
  Ptr<R> running;
  Ptr<const V> stats;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t c = global_thread(block);
    if (c >= r.channels) return;
    const std::int64_t first = (r.variance ? 2 : 0) * r.strides[0];
    double count = 0;
    double value = 0;
    for (std::int64_t s = 0; s < r.samples; ++s) {
      const std::int64_t at = s * r.strides[1] + c * r.strides[2];
      count += static_cast<double>(stats[3 * r.strides[0] + at]);
      value += static_cast<double>(stats[first + at]);
      if (!r.variance) value += static_cast<double>(stats[r.strides[0] + at]);
    }
    if (count == 0) return;
    const cpu::RunningMove move(count, r.row, r.momentum, r.variance);
    const double kept = static_cast<double>(load(running[c * r.stride]));
    running[c * r.stride] = convert<R>(move.moved(kept, value));
  }
};

constexpr std::int64_t kLongRow = 32;

// With one set of statistics for all samples, samples that follow each other in memory are one; short rows
// of contiguous samples are columns of their own.
ChannelCuts cuts_of(const ChannelData& d, bool samples_adjoin, std::int64_t runs, std::int64_t longest) {
  ChannelCuts c;
  c.samples = d.samples;
  if (d.innermost) {
    c.by_columns = true;
    const bool one = !d.per_sample && samples_adjoin;
    c.columns =
        one ? column_cuts(1, d.samples * d.row, d.channels) : column_cuts(d.samples, d.row, d.channels);
  } else if (!d.per_sample && d.row < kLongRow) {
    c.by_columns = true;
    c.columns = column_cuts(1, d.samples, d.channels * d.row);
    c.spread = d.row;
  } else {
    c.runs = runs;
    c.pieces = (longest + ChannelCuts::kPiece - 1) / ChannelCuts::kPiece;
    if (c.pieces < 1) c.pieces = 1;
  }
  return c;
}

}  // namespace

ChannelCuts moment_cuts(const ChannelData& d, bool samples_adjoin) {
  const bool channel = d.table != nullptr;
  return cuts_of(d, samples_adjoin, channel ? d.channels : d.groups, (channel ? 1 : d.per) * d.row);
}

ChannelCuts sum_cuts(const ChannelData& d, bool samples_adjoin) {
  return cuts_of(d, samples_adjoin, d.channels, d.row);
}

void channel_moments(const ChannelMoments& m, StreamHandle stream) {
  const ChannelCuts& c = m.cuts;
  const bool empty = m.data.numel() == 0;
  const Parts parts{m.partial, c.numbers()};
  dispatch_floating(m.data.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const auto* x = static_cast<const T*>(m.x.data);
    if (empty) {
    } else if (c.by_columns) {
      launch(ColumnMoments<T>{{}, c.columns, m.x.step, x, parts}, shape_for(c.columns), stream);
    } else {
      launch(RunMoments<T>{{}, m.data, c, m.x.step, x, parts}, {c.numbers(), 256, kReduceBytes}, stream);
    }
    const std::int64_t samples = c.by_columns ? c.columns.samples : c.samples;
    const std::int64_t pieces = c.by_columns ? c.columns.parts : c.pieces;
    const std::int64_t inner = c.by_columns ? c.columns.columns : c.runs;
    JoinMoments<Wide<T>> join;
    join.data = m.data;
    join.parts = parts;
    join.outer = empty ? 0 : (m.data.per_sample ? 1 : samples) * pieces;
    join.inner = inner;
    join.spread = c.spread;
    join.runs_are_groups = !c.by_columns && m.data.table == nullptr;
    join.out = static_cast<Wide<T>*>(m.moments);
    launch(join, {m.data.statistics(), join.outer > 64 ? 256 : 64, kReduceBytes}, stream);
  });
}

void move_running(const RunningStatistic& r, StreamHandle stream) {
  dispatch_floating(r.running.dtype, [&](auto tag) {
    using R = typename decltype(tag)::type;
    const auto run = [&]<class V>(const V* stats) {
      launch(MoveRunning<R, V>{{}, r, static_cast<R*>(r.running.data), stats}, one_each(r.channels), stream);
    };
    if (r.stats.dtype == DType::F64) return run(static_cast<const double*>(r.stats.data));
    run(static_cast<const float*>(r.stats.data));
  });
}

}  // namespace tessera::cuda
