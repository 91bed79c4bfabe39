#include "ops/cpu/channel_rows.h"

namespace tessera::cpu {

namespace {

// Blocks of one array as contiguous numbers of the type computed in.
template <class S>
class PartBlocks {
 public:
  using T = Compute<S>;
  PartBlocks(const Array& a, const RowPart& part, std::int64_t largest, Workspace& scratch)
      : data_(a.data<S>() + part.sample * a.stride(0)),
        buffer_(std::is_same_v<S, T> ? nullptr : scratch.take<T>(largest)) {}
  const T* in(std::int64_t offset, std::int64_t n) const { return row_in<S>(data_ + offset, 1, n, buffer_); }

 private:
  const S* data_;
  T* buffer_;
};

struct SinkBlocks {
  bool past;
  std::int64_t largest;
};
template <class S>
BlockSink<S> part_sink(const Array& a, const RowPart& part, const SinkBlocks& blocks, Workspace& scratch) {
  return {a.data<S>() + part.sample * a.stride(0), blocks.past, blocks.largest, scratch};
}

// Of moments: the first block of a part is read twice, those after it once, as a rule. They are longer, as
// every block has its columns joined to those before it; buffers of converted numbers stay in the cache.
template <class S>
WideBlocks moment_blocks(const ChannelRows& r) {
  const std::int64_t first = std::max<std::int64_t>(r.block_rows() / 2, 4);
  return {first, std::is_same_v<S, Compute<S>> ? 8 * first : r.block_rows()};
}

// The columns of a part's wide rows joined by channel. `sum` and `squares` are of columns; out has the mean
// and the squared deviations of the channels.
void join_columns(const ChannelRows& r, const RowPart& part, const double* sum, const double* squares,
                  double* mean, double* m2) {
  const std::int64_t full = part.rows / r.together;
  const std::int64_t rest = part.rows % r.together;
  const auto count = [&](std::int64_t t) { return static_cast<double>(full + (t < rest ? 1 : 0)); };
  for (std::int64_t t = 0; t < r.together; ++t)
    for (std::int64_t c = 0; c < r.channels; ++c) mean[c] += sum[t * r.channels + c];
  for (std::int64_t c = 0; c < r.channels; ++c) mean[c] /= static_cast<double>(part.rows);
  for (std::int64_t t = 0; t < r.together; ++t) {
    if (count(t) == 0) continue;
    const double each = 1.0 / count(t);
    for (std::int64_t c = 0; c < r.channels; ++c) {
      const double off = sum[t * r.channels + c] * each - mean[c];
      m2[c] += squares[t * r.channels + c] + count(t) * off * off;
    }
  }
}

}  // namespace

template <class S>
GroupMoments row_moments(const ChannelMomentsArgs& args) {
  using T = Compute<S>;
  const ChannelRows r({&args.x}, args.groups);
  const auto& kernel = blocks_of<T>(norm_table());
  std::vector<double> mean(static_cast<std::size_t>(r.parts() * r.channels));
  std::vector<double> m2(mean.size());
  for_row_parts(r, {6.0 * static_cast<double>(r.numel())}, [&](const RowPart& part) {
    Workspace& scratch = Workspace::begin();
    const std::int64_t width = r.width();
    const WideBlocks blocks = moment_blocks<S>(r);
    const PartBlocks<S> x(args.x, part, blocks.most * width, scratch);
    auto* sum = scratch.take<double>(2 * width);
    std::fill_n(sum, 2 * width, 0.0);
    T* work = scratch.take<T>(3 * width);
    double before = 0;
    for_wide_rows(r, part, blocks, [&](std::int64_t at, std::int64_t rows, std::int64_t columns) {
      kernel.add_moments(sum, sum + width, x.in(at, rows * columns), rows, columns, before, work);
      before += static_cast<double>(rows);
    });
    join_columns(r, part, sum, sum + width, mean.data() + part.index * r.channels,
                 m2.data() + part.index * r.channels);
  });
  return merged_moments(args.groups.rows(args.x.size(0)), [&](const auto& take) {
    for (std::int64_t i = 0; i < r.parts(); ++i) {
      const std::int64_t first = i % r.cuts() * r.part_rows;
      const auto n = static_cast<double>(std::min(r.part_rows, r.rows - first));
      for (std::int64_t c = 0; c < r.channels; ++c) {
        const auto from = static_cast<std::size_t>(i * r.channels + c);
        take(args.groups.row(i / r.cuts(), c), n, mean[from], m2[from]);
      }
    }
  });
}

template <class S>
void normalize_rows(const ChannelNormArgs& args) {
  using T = Compute<S>;
  const ChannelRows r({&args.x, &args.y}, args.groups);
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const auto& kernel = blocks_of<T>(norm_table());
  const bool past = past_caches(args.y, {&args.x});
  const auto body = [&](const RowPart& part) {
    Workspace& scratch = Workspace::begin();
    const PartBlocks<S> x(args.x, part, r.width(), scratch);
    const BlockSink<S> out = part_sink<S>(args.y, part, {past, r.width()}, scratch);
    const T* v =
        spread_numbers<T, 3>(r, scratch, [&](std::int64_t c) { return numbers.forward(part.sample, c); });
    for_wide_rows(r, part, {1, 1}, [&](std::int64_t at, std::int64_t, std::int64_t n) {
      T* y = out.place(at);
      kernel.normalize_each(y, x.in(at, n), n, v, v + r.width(), v + 2 * r.width());
      activation.apply(y, n);
      out.done(at, n, y);
    });
  };
  for_row_parts(r, {4.0 * static_cast<double>(r.numel()), true, past}, body);
}

template <class S>
ChannelSums row_sums(const ChannelSumsArgs& args) {
  using T = Compute<S>;
  const ChannelRows r({&args.x, &args.dy, args.dz.defined() ? &args.dz : &args.x}, args.groups);
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const auto& kernel = blocks_of<T>(norm_table());
  const std::int64_t width = r.width();
  const std::int64_t most = r.block_rows();
  std::vector<double> partial(static_cast<std::size_t>(2 * r.parts() * r.channels));
  for_row_parts(r, {4.0 * static_cast<double>(r.numel())}, [&](const RowPart& part) {
    Workspace& scratch = Workspace::begin();
    const PartBlocks<S> x_blocks(args.x, part, most * width, scratch);
    const PartBlocks<S> dy_blocks(args.dy, part, most * width, scratch);
    const T* v =
        spread_numbers<T, 3>(r, scratch, [&](std::int64_t c) { return numbers.forward(part.sample, c); });
    auto* sum = scratch.take<double>(2 * width);
    std::fill_n(sum, 2 * width, 0.0);
    T* work = scratch.take<T>(2 * width);
    T* kept = args.dz.defined() ? args.dz.data<T>() + part.sample * args.dz.stride(0) : nullptr;
    T* z = activation && kept == nullptr ? scratch.take<T>(most * width) : nullptr;
    for_wide_rows(r, part, {most, most}, [&](std::int64_t at, std::int64_t rows, std::int64_t n) {
      if (kept != nullptr) z = kept + at;
      const T* x = x_blocks.in(at, rows * n);
      const T* dy = dy_blocks.in(at, rows * n);
      for (std::int64_t i = 0; activation && i < rows; ++i)
        kernel.normalize_each(z + i * n, x + i * n, n, v, v + width, v + 2 * width);
      if (activation) dy = activation.gradient(z, dy, rows * n);
      kernel.add_gradient_rows(sum, sum + width, dy, x, v, rows, n, work);
    });
    double* to = partial.data() + 2 * part.index * r.channels;
    for (std::int64_t i = 0; i < width; i += r.channels)
      for (std::int64_t c = 0; c < r.channels; ++c) {
        to[c] += sum[i + c];
        to[r.channels + c] += sum[width + i + c];
      }
  });
  ChannelSums out(r.samples, r.channels);
  for (std::int64_t i = 0; i < r.parts(); ++i)
    for (std::int64_t c = 0; c < r.channels; ++c) {
      const auto to = static_cast<std::size_t>(i / r.cuts() * r.channels + c);
      out.dy[to] += partial[static_cast<std::size_t>(2 * i * r.channels + c)];
      out.product[to] += partial[static_cast<std::size_t>((2 * i + 1) * r.channels + c)];
    }
  return out;
}

template <class S>
void gradient_rows(const ChannelGradientArgs& args) {
  using T = Compute<S>;
  const ChannelRows r({&args.x, &args.dy, &args.dx}, args.groups);
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const T* sums = args.sums.defined() ? args.sums.data<T>() : nullptr;
  const auto& kernel = blocks_of<T>(norm_table());
  const std::int64_t width = r.width();
  const bool past = past_caches(args.dx, {&args.dy, &args.x});
  const auto body = [&](const RowPart& part) {
    Workspace& scratch = Workspace::begin();
    const PartBlocks<S> x_rows(args.x, part, width, scratch);
    const PartBlocks<S> dy_rows(args.dy, part, width, scratch);
    const BlockSink<S> out = part_sink<S>(args.dx, part, {past, width}, scratch);
    const T* v = spread_numbers<T, 4>(r, scratch,
                                      [&](std::int64_t c) { return numbers.gradient(part.sample, c, sums); });
    T* z = activation ? scratch.take<T>(width) : nullptr;
    const T* f = activation ? spread_numbers<T, 3>(
                                  r, scratch, [&](std::int64_t c) { return numbers.forward(part.sample, c); })
                            : nullptr;
    for_wide_rows(r, part, {1, 1}, [&](std::int64_t at, std::int64_t, std::int64_t n) {
      const T* dy = dy_rows.in(at, n);
      // Statistics that were given: x, which may be infinite, plays no part.
      const T* x = sums == nullptr && !activation ? dy : x_rows.in(at, n);
      if (activation) {
        kernel.normalize_each(z, x, n, f, f + width, f + 2 * width);
        dy = activation.gradient(z, dy, n);
      }
      T* dx = out.place(at);
      kernel.gradient_each(dx, dy, sums == nullptr ? dy : x, n, v, width);
      out.done(at, n, dx);
    });
  };
  for_row_parts(r, {6.0 * static_cast<double>(r.numel()), true, past}, body);
}

#define TESSERA_CHANNEL_ROWS(S)                                    \
  template GroupMoments row_moments<S>(const ChannelMomentsArgs&); \
  template void normalize_rows<S>(const ChannelNormArgs&);         \
  template ChannelSums row_sums<S>(const ChannelSumsArgs&);        \
  template void gradient_rows<S>(const ChannelGradientArgs&);
TESSERA_CHANNEL_ROWS(float)
TESSERA_CHANNEL_ROWS(double)
TESSERA_CHANNEL_ROWS(bf16)
TESSERA_CHANNEL_ROWS(f16)
#undef TESSERA_CHANNEL_ROWS

}  // namespace tessera::cpu
