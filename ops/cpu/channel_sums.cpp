#include "ops/cpu/channel_rows.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

// With long rows, or statistics of their own, every sample is a share.
std::int64_t shares_of(const ChannelShape& s, const ChannelGroups& groups) {
  if (groups.per_sample || s.long_rows()) return s.samples;
  return std::min<std::int64_t>(s.samples, 16);
}

template <class S>
void long_rows(const ChannelSumsArgs& args, const ChannelShape& s, ChannelSums& out) {
  using T = Compute<S>;
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const auto& kernel = blocks_of<T>(norm_table());
  const std::int64_t cuts = s.cuts();
  std::vector<T> partial(static_cast<std::size_t>(2 * s.samples * s.channels * cuts));
  for_channel_blocks(s, {4.0 * static_cast<double>(s.numel())}, [&](const ChannelBlock& b) {
    Workspace& scratch = Workspace::begin();
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(b.length); };
    const T* dy = row_in<S>(args.dy.data<S>() + b.offset, 1, b.length, buffer());
    const T* x = row_in<S>(args.x.data<S>() + b.offset, 1, b.length, buffer());
    const std::int64_t row = b.sample * s.channels + b.channel;
    const auto [mean, scale, shift] = numbers.forward(b.sample, b.channel);
    if (activation) {
      T* z = args.dz.defined() ? args.dz.data<T>() + b.offset : scratch.take<T>(b.length);
      kernel.normalize(z, x, b.length, mean, scale, shift);
      dy = activation.gradient(z, dy, b.length);
    }
    kernel.gradient_sums(dy, x, b.length, mean, partial.data() + 2 * (row * cuts + b.cut));
  });
  for (std::int64_t i = 0; i < std::ssize(partial) / 2; ++i) {
    out.dy[static_cast<std::size_t>(i / cuts)] +=
        static_cast<double>(partial[static_cast<std::size_t>(2 * i)]);
    out.product[static_cast<std::size_t>(i / cuts)] +=
        static_cast<double>(partial[static_cast<std::size_t>(2 * i + 1)]);
  }
}

// The channels of a block side by side, sample after sample.
template <class S>
void short_rows(const ChannelSumsArgs& args, const ChannelShape& s, ChannelSums& out) {
  using T = Compute<S>;
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const auto& kernel = blocks_of<T>(norm_table());
  const std::int64_t together = s.together();
  const std::int64_t blocks = ceil_div(s.channels, together);
  const std::int64_t share = ceil_div(s.samples, out.shares);
  const double work = 4.0 * static_cast<double>(s.numel());
  parallel_for(out.shares * blocks, threads_for(work), [&](std::int64_t job) {
    const std::int64_t c = job % blocks * together;
    const std::int64_t channels = std::min(together, s.channels - c);
    const std::int64_t n = channels * s.row;
    Workspace& scratch = Workspace::begin();
    auto* sum = scratch.take<double>(2 * n);
    std::fill_n(sum, 2 * n, 0.0);
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(n); };
    T* dy_buffer = buffer();
    T* x_buffer = buffer();
    T* mean = scratch.take<T>(3 * n);  // and scale, shift
    T* z = activation && !args.dz.defined() ? scratch.take<T>(n) : nullptr;
    const std::int64_t first = job / blocks * share;
    for (std::int64_t i = 0; i < channels; ++i) {
      const std::array<T, 3> v = numbers.forward(first, c + i);
      for (int t = 0; t < 3; ++t)
        std::fill_n(mean + t * n + i * s.row, s.row, v[static_cast<std::size_t>(t)]);
    }
    for (std::int64_t sample = first; sample < std::min(s.samples, first + share); ++sample) {
      const std::int64_t at = sample * s.apart + c * s.row;
      const T* dy = row_in<S>(args.dy.data<S>() + at, 1, n, dy_buffer);
      const T* x = row_in<S>(args.x.data<S>() + at, 1, n, x_buffer);
      if (activation) {
        if (args.dz.defined()) z = args.dz.data<T>() + at;
        kernel.normalize_each(z, x, n, mean, mean + n, mean + 2 * n);
        dy = activation.gradient(z, dy, n);
      }
      kernel.add_gradient_sums(sum, sum + n, dy, x, mean, n);
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const auto to = static_cast<std::size_t>(job / blocks * s.channels + c + i / s.row);
      out.dy[to] += sum[i];
      out.product[to] += sum[n + i];
    }
  });
}

template <class S>
ChannelSums local_sums(const ChannelSumsArgs& args, const ChannelShape& s) {
  if (s.numel() != 0 && !row_major_samples(args.x)) return row_sums<S>(args);
  ChannelSums out(std::max<std::int64_t>(shares_of(s, args.groups), 1), s.channels);
  if (s.numel() == 0) return out;
  s.long_rows() ? long_rows<S>(args, s, out) : short_rows<S>(args, s, out);
  return out;
}

template <class S>
void write_sums(const ChannelSumsArgs& args, const ChannelShape& s, const ChannelSums& local) {
  using T = Compute<S>;
  const ChannelNumbers<S> numbers(args);
  const std::int64_t rows = args.stats.size(1);
  std::vector<double> sums(static_cast<std::size_t>(args.sums.defined() ? 2 * rows : 0));
  std::vector<double> dweight(static_cast<std::size_t>(s.channels));
  std::vector<double> dbias(static_cast<std::size_t>(s.channels));
  const std::int64_t shares = s.samples == 0 ? 0 : local.shares;
  for (std::int64_t share = 0; share < shares; ++share)
    for (std::int64_t c = 0; c < s.channels; ++c) {
      const auto from = static_cast<std::size_t>(share * s.channels + c);
      const std::int64_t row = args.groups.row(share, c);
      const double g = local.dy[from];
      const double gx = (local.product[from] - numbers.rest(row) * g) * numbers.rstd(row);
      dweight[static_cast<std::size_t>(c)] += gx;
      dbias[static_cast<std::size_t>(c)] += g;
      if (sums.empty()) continue;
      const double w = element_or<S>(args.weight, c, 1.0);
      sums[static_cast<std::size_t>(row)] += w * g;
      sums[static_cast<std::size_t>(rows + row)] += w * gx;
    }
  if (args.sums.defined())
    for (std::int64_t i = 0; i < 2 * rows; ++i)
      args.sums.data<T>()[i] = static_cast<T>(sums[static_cast<std::size_t>(i)]);
  const auto put = [&](const Array& to, const std::vector<double>& from) {
    for (std::int64_t c = 0; to.defined() && c < s.channels; ++c)
      to.data<S>()[c] = static_cast<S>(static_cast<T>(from[static_cast<std::size_t>(c)]));
  };
  put(args.dweight, dweight);
  put(args.dbias, dbias);
}

}  // namespace

bool channel_norm_keeps_slopes(const Array& x, NormActivation activation) {
  return activation >= NormActivation::Silu && !is_half(x.dtype());
}

void channel_norm_sums(const ChannelSumsArgs& args) {
  const char* op = "channel_norm_sums";
  for (const Array* a : {&args.x, &args.dy}) check_channel_data(op, *a, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  if (args.sums.defined()) check_channel_statistics(op, args.sums, 2, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias, &args.dweight, &args.dbias})
    check_channel_vector(op, *v, args.x);
  if (args.dz.defined()) {
    check_channel_data(op, args.dz, args.x);
    TS_CHECK(!is_half(args.dz.dtype()) && args.activation != NormActivation::None, op,
             "slopes are kept in f32 and f64, and of an activation alone");
  }
  const ChannelShape shape(args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    write_sums<S>(args, shape, local_sums<S>(args, shape));
  });
}

}  // namespace tessera::cpu
