#include "ops/cpu/channel_rows.h"
#include "ops/cpu/running_move.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

// A piece of the numbers that one statistic of one sample takes up.
struct Part {
  std::int64_t offset, length, group;
};

constexpr std::int64_t kPart = 16384;

// Neighbouring channels of one group lie in one piece of memory.
std::vector<Part> parts_of_sample(const ChannelShape& s, const ChannelGroups& groups) {
  std::vector<Part> parts;
  parts.reserve(static_cast<std::size_t>(s.channels));
  for (std::int64_t c = 0; c < s.channels;) {
    const std::int64_t first = c;
    const std::int64_t group = groups.of_channel[static_cast<std::size_t>(c)];
    while (c < s.channels && groups.of_channel[static_cast<std::size_t>(c)] == group) ++c;
    for (std::int64_t at = first * s.row; at < c * s.row; at += kPart)
      parts.push_back({at, std::min(kPart, c * s.row - at), group});
  }
  return parts;
}

// Elements whose deviations are added up in T: float accumulators must do. Read in four shares of pages.
constexpr std::int64_t kMomentBlock = 4096;

// Sum and squared deviations of a run, block by block, each joined to those before it (Chan et al. 1979).
template <class T>
std::array<double, 2> moments_of_run(const T* x, std::int64_t n) {
  const auto& kernel = blocks_of<T>(norm_table());
  std::array<double, 2> all{};
  for (std::int64_t at = 0; at < n; at += kMomentBlock) {
    const std::int64_t length = std::min(kMomentBlock, n - at);
    std::array<double, 2> own{};
    kernel.moments(x + at, length, own.data());
    const auto before = static_cast<double>(at);
    const auto count = static_cast<double>(length);
    const double off = at == 0 ? 0.0 : own[0] / count - all[0] / before;
    all[0] += own[0];
    all[1] += own[1] + before * count / (before + count) * off * off;
  }
  return all;
}

// Every part's own mean and squared deviations; then those of the whole, around the mean of the whole.
template <class S>
GroupMoments moments_by_parts(const S* x, const ChannelShape& s, const ChannelGroups& groups) {
  using T = Compute<S>;
  const std::vector<Part> parts = parts_of_sample(s, groups);
  const std::int64_t per_sample = std::ssize(parts);
  const std::int64_t all = s.samples * per_sample;
  SmallBuffer<double> means(all);
  SmallBuffer<double> squares(all);
  const std::int64_t group = std::max<std::int64_t>(1, kPart * all / std::max<std::int64_t>(s.numel(), 1));
  parallel_for(ceil_div(all, group), threads_for(4.0 * static_cast<double>(s.numel())),
               [&](std::int64_t piece) {
                 T* buffer = std::is_same_v<S, T> ? nullptr : Workspace::begin().take<T>(kPart);
                 for (std::int64_t i = piece * group; i < std::min(all, (piece + 1) * group); ++i) {
                   const Part& p = parts[static_cast<std::size_t>(i % per_sample)];
                   const S* from = x + i / per_sample * s.apart + p.offset;
                   const T* row = row_in<S>(from, 1, p.length, buffer);
                   const auto [sum, deviations] = moments_of_run(row, p.length);
                   means[i] = sum / static_cast<double>(p.length);
                   squares[i] = deviations;
                 }
               });
  return merged_moments(groups.rows(s.samples), [&](const auto& take) {
    for (std::int64_t i = 0; i < all; ++i) {
      const Part& p = parts[static_cast<std::size_t>(i % per_sample)];
      const std::int64_t row = (groups.per_sample ? i / per_sample * groups.groups : 0) + p.group;
      take(row, static_cast<double>(p.length), means[i], squares[i]);
    }
  });
}

// take(accumulators of a strip, rows, number of rows, row length, first column) over strips of columns and
// fixed shares of the samples; the shares are added in order.
template <class S, class Take>
SmallBuffer<double> add_columns(const S* x, std::int64_t samples, std::int64_t columns, const Take& take) {
  using T = Compute<S>;
  constexpr std::int64_t kStrip = 512;
  constexpr std::int64_t kRows = 4096;
  const std::int64_t strips = ceil_div(columns, kStrip);
  const std::int64_t shares = std::min<std::int64_t>(16, ceil_div(samples, kRows));
  const std::int64_t share = ceil_div(samples, shares);
  SmallBuffer<double> partial(shares * columns);
  const double work = static_cast<double>(samples) * static_cast<double>(columns);
  parallel_for(strips * shares, threads_for(work), [&](std::int64_t job) {
    const std::int64_t at = job % strips * kStrip;
    const std::int64_t n = std::min(kStrip, columns - at);
    const std::int64_t first = job / strips * share;
    const std::int64_t last = std::min(samples, first + share);
    double* acc = partial.data() + job / strips * columns + at;
    if constexpr (std::is_same_v<S, T>) {
      take(acc, x + first * columns + at, std::max<std::int64_t>(last - first, 0), columns, n, at);
    } else {
      T* buffer = Workspace::begin().take<T>(kStrip);
      for (std::int64_t r = first; r < last; ++r) {
        load_block<S>(buffer, x + r * columns + at, 1, n);
        take(acc, buffer, std::int64_t{1}, columns, n, at);
      }
    }
  });
  for (std::int64_t i = columns; i < shares * columns; ++i) partial[i % columns] += partial[i];
  return partial;  // the first `columns`
}

// Batch norm over short rows: a sample is one row of C·S columns.
template <class S>
GroupMoments moments_by_columns(const S* x, const ChannelShape& s, const ChannelGroups& groups) {
  using T = Compute<S>;
  const auto& kernel = blocks_of<T>(reduce_table());
  const std::int64_t columns = s.channels * s.row;
  const auto group_of = [&](std::int64_t column) {
    return groups.of_channel[static_cast<std::size_t>(column / s.row)];
  };
  GroupMoments sums(groups.groups);
  const SmallBuffer<double> sum =
      add_columns<S>(x, s.samples, columns,
                     [&](double* acc, const T* rows, std::int64_t count, std::int64_t stride, std::int64_t n,
                         std::int64_t) { kernel.add_columns(acc, rows, count, stride, n); });
  for (std::int64_t i = 0; i < columns; ++i) {
    sums.count[group_of(i)] += static_cast<double>(s.samples);
    sums.mean[group_of(i)] += sum[i];
  }
  for (std::int64_t r = 0; r < groups.groups; ++r)
    if (sums.count[r] > 0) sums.mean[r] /= sums.count[r];
  SmallBuffer<double> centre(columns);
  for (std::int64_t i = 0; i < columns; ++i) centre[i] = sums.mean[group_of(i)];
  const SmallBuffer<double> squares = add_columns<S>(
      x, s.samples, columns,
      [&](double* acc, const T* rows, std::int64_t count, std::int64_t stride, std::int64_t n,
          std::int64_t at) { kernel.add_square_columns(acc, centre.data() + at, rows, count, stride, n); });
  for (std::int64_t i = 0; i < columns; ++i) sums.m2[group_of(i)] += squares[i];
  return sums;
}

template <class T>
void write(const Array& moments, const GroupMoments& sums) {
  const std::int64_t rows = moments.size(1);
  T* out = moments.data<T>();
  for (std::int64_t r = 0; r < rows; ++r) {
    const double mean = sums.mean[r];
    out[r] = static_cast<T>(mean);
    out[rows + r] = std::isfinite(mean) ? static_cast<T>(mean - static_cast<double>(out[r])) : T(0);
    out[2 * rows + r] = static_cast<T>(sums.m2[r]);
  }
}

// A row of statistics from a vector of its own type.
template <class T>
void copy_row(T* to, const Array& from) {
  dispatch_floating(from.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const S* x = from.data<S>();
    const std::int64_t step = from.stride(0);
    for (std::int64_t r = 0; r < from.size(0); ++r)
      to[r] = static_cast<T>(static_cast<Compute<S>>(x[r * step]));
  });
}

// f(first element) in the type of the statistics.
template <class F>
void with_floats(const Array& stats, const F& f) {
  if (stats.dtype() == DType::F64) return f(stats.data<double>());
  f(stats.data<float>());
}
template <class F>
void with_rows(const Array& stats, const F& f) {
  with_floats(stats, [&](auto* first) { f(first, stats.size(1)); });
}

// One of the two.
template <class R, class V>
void move_one(const Array& running, const MoveRunningArgs& args, const RunningMove& move) {
  const std::int64_t set = args.stats.stride(0);
  const std::int64_t step = args.stats.stride(1);
  const V* from = args.stats.data<V>() + (move.variance ? 2 * set : 0);
  R* to = running.data<R>();
  for (std::int64_t c = 0; c < running.size(0); ++c) {
    const std::int64_t at = c * args.stats.stride(2);
    double value = 0;
    for (std::int64_t s = 0; s < args.stats.size(1); ++s) {
      value += static_cast<double>(from[at + s * step]);
      if (!move.variance) value += static_cast<double>(from[at + s * step + set]);
    }
    R& kept = to[c * running.stride(0)];
    kept = static_cast<R>(
        static_cast<Compute<R>>(move.moved(static_cast<double>(static_cast<Compute<R>>(kept)), value)));
  }
}

}  // namespace

void check_move_running(const MoveRunningArgs& args) {
  const char* op = "move_running";
  const Array& stats = args.stats;
  TS_CHECK(
      stats.dim() == 3 && stats.size(0) == 4 && (stats.dtype() == DType::F32 || stats.dtype() == DType::F64),
      op, "statistics {} {}; f32 or f64 [4, samples, C] are needed", name_of(stats.dtype()),
      stats.sizes().str());
  for (const Array* r : {&args.mean, &args.var})
    TS_CHECK(!r->defined() || (is_floating(r->dtype()) && r->sizes() == Dims{stats.size(2)}), op,
             "running statistics {} {} beside statistics {}", name_of(r->dtype()), r->sizes().str(),
             stats.sizes().str());
}

void move_running(const MoveRunningArgs& args) {
  check_move_running(args);
  const std::int64_t sets = args.stats.size(1);
  if (args.stats.numel() == 0) return;
  with_floats(args.stats, [&]<class V>(const V* stats) {
    double count = 0;
    for (std::int64_t s = 0; s < sets; ++s)
      count += static_cast<double>(stats[3 * args.stats.stride(0) + s * args.stats.stride(1)]);
    if (count == 0) return;
    for (const Array* r : {&args.mean, &args.var}) {
      if (!r->defined()) continue;
      const RunningMove move(count, args.row, args.momentum, r == &args.var);
      dispatch_floating(r->dtype(),
                        [&](auto tag) { move_one<typename decltype(tag)::type, V>(*r, args, move); });
    }
  });
}

void finish_statistics(const FinishStatisticsArgs& args) {
  with_rows(args.stats, [&]<class T>(T* stats, std::int64_t rows) {
    const auto factor = static_cast<T>(1.0 / std::max(args.count, 1.0));
    for (std::int64_t r = 2 * rows; r < 3 * rows; ++r) stats[r] *= factor;
    std::fill(stats + 3 * rows, stats + 4 * rows, static_cast<T>(args.count));
  });
}

void given_statistics(const GivenStatisticsArgs& args) {
  with_rows(args.stats, [&]<class T>(T* stats, std::int64_t rows) {
    copy_row(stats, args.mean);
    std::fill(stats + rows, stats + 2 * rows, T(0));
    copy_row(stats + 2 * rows, args.var);
    std::fill(stats + 3 * rows, stats + 4 * rows, T(1));
  });
}

void channel_moments(const ChannelMomentsArgs& args) {
  check_channel_data("channel_moments", args.x, args.x);
  check_channel_statistics("channel_moments", args.moments, 3, args.x, args.groups);
  const ChannelShape shape(args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    const bool columns = !args.groups.per_sample && !shape.long_rows() && args.x.is_contiguous() &&
                         shape.samples > 1 && shape.numel() > 0;
    const S* x = args.x.data<S>();
    if (!row_major_samples(args.x)) return write<Compute<S>>(args.moments, row_moments<S>(args));
    write<Compute<S>>(args.moments, columns ? moments_by_columns<S>(x, shape, args.groups)
                                            : moments_by_parts<S>(x, shape, args.groups));
  });
}

}  // namespace tessera::cpu
