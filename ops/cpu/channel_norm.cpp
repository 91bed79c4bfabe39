#include "ops/cpu/channel_norm.h"

#include "ops/cpu/channel_blocks.h"
#include "ops/cpu/workspace.h"
#include "runtime/error.h"

namespace tessera::cpu {

void check_channel_data(const char* op, const Array& x, const Array& like) {
  TS_CHECK(x.dim() == 3 && x.sizes() == like.sizes() && x.is_contiguous() && x.dtype() == like.dtype() &&
               is_floating(x.dtype()),
           op, "operand {} {} with strides {}; contiguous floating data like {} [N, C, S] are needed",
           name_of(x.dtype()), x.sizes().str(), x.strides().str(), like.sizes().str());
}

void check_channel_vector(const char* op, const Array& v, const Array& x) {
  if (!v.defined()) return;
  TS_CHECK(v.dim() == 1 && v.size(0) == x.size(1) && v.is_contiguous() && v.dtype() == x.dtype(), op,
           "vector {} {}; a contiguous one of {} elements of type {} is needed", name_of(v.dtype()),
           v.sizes().str(), x.size(1), name_of(x.dtype()));
}

void check_channel_statistics(const char* op, const Array& stats, std::int64_t terms, const Array& x,
                              const ChannelGroups& groups) {
  TS_CHECK(std::ssize(groups.of_channel) == x.size(1), op, "groups of {} channels, the data have {}",
           groups.of_channel.size(), x.size(1));
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Dims sizes{terms, groups.rows(x.size(0))};
  TS_CHECK(stats.sizes() == sizes && stats.is_contiguous() && stats.dtype() == acc, op,
           "statistics {} {}; contiguous ones {} of type {} are needed", name_of(stats.dtype()),
           stats.sizes().str(), sizes.str(), name_of(acc));
}

namespace {

// The numbers that map the elements of short rows, `terms` of them, each repeated along its channel's row.
// of(n, c) finds those of a channel. Where all samples share them they are worked out once.
template <class T, int terms, class Of>
class Spread {
 public:
  struct View {
    const T* first;
    std::int64_t term;  // from one term to the next
  };
  Spread(const ChannelShape& s, bool per_sample, const Of& of) : s_(s), of_(of) {
    if (s.long_rows() || per_sample || s.numel() == 0) return;
    all_.resize(static_cast<std::size_t>(terms * s.channels * s.row));
    fill(all_.data(), {0, 0, s.channels, 0, s.channels * s.row});
  }
  View of(const ChannelBlock& b, Workspace& scratch) const {
    if (!all_.empty()) return {all_.data() + b.channel * s_.row, s_.channels * s_.row};
    T* own = scratch.take<T>(terms * b.length);
    fill(own, b);
    return {own, b.length};
  }

 private:
  void fill(T* to, const ChannelBlock& b) const {
    for (std::int64_t c = 0; c < b.channels; ++c) {
      const std::array<T, terms> v = of_(b.sample, b.channel + c);
      for (int t = 0; t < terms; ++t)
        std::fill_n(to + t * b.length + c * s_.row, s_.row, v[static_cast<std::size_t>(t)]);
    }
  }
  const ChannelShape& s_;
  const Of& of_;
  std::vector<T> all_;
};

template <class S>
void forward(const ChannelNormArgs& args) {
  using T = Compute<S>;
  const ChannelShape s(args.x);
  const ChannelStatistics<T> stats(args.stats, args.eps);
  const auto& kernel = blocks_of<T>(norm_table());
  const auto numbers = [&](std::int64_t n, std::int64_t c) {
    const std::int64_t row = args.groups.row(n, c);
    const double scale = stats.rstd(row) * element_or<S>(args.weight, c, 1.0);
    const double shift = element_or<S>(args.bias, c, 0.0) - stats.rest(row) * scale;
    return std::array<T, 3>{stats.mean(row), static_cast<T>(scale), static_cast<T>(shift)};
  };
  const Spread<T, 3, decltype(numbers)> spread(s, args.groups.per_sample, numbers);
  for_channel_blocks(s, 4.0 * static_cast<double>(s.numel()), [&](const ChannelBlock& b) {
    Workspace& scratch = Workspace::begin();
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(b.length); };
    S* out = args.y.data<S>() + b.offset;
    T* y = row_out<S>(out, 1, buffer());
    const T* x = row_in<S>(args.x.data<S>() + b.offset, 1, b.length, buffer());
    if (s.long_rows()) {
      const auto [mean, scale, shift] = numbers(b.sample, b.channel);
      kernel.normalize(y, x, b.length, mean, scale, shift);
    } else {
      const auto v = spread.of(b, scratch);
      kernel.normalize_each(y, x, b.length, v.first, v.first + v.term, v.first + 2 * v.term);
    }
    row_done<S>(out, 1, b.length, y);
  });
}

template <class S>
void backward(const ChannelGradientArgs& args) {
  using T = Compute<S>;
  const ChannelShape s(args.x);
  const ChannelStatistics<T> stats(args.stats, args.eps);
  const T* sums = args.sums.defined() ? args.sums.data<T>() : nullptr;
  const std::int64_t rows = args.stats.size(1);
  const auto& kernel = blocks_of<T>(norm_table());
  const auto numbers = [&](std::int64_t n, std::int64_t c) {
    const std::int64_t row = args.groups.row(n, c);
    const double rstd = stats.rstd(row);
    const T factor = static_cast<T>(rstd * element_or<S>(args.weight, c, 1.0));
    if (sums == nullptr) return std::array<T, 4>{factor, T(0), T(0), T(0)};
    const double per = rstd / stats.count(row);
    const double slope = -rstd * per * static_cast<double>(sums[rows + row]);
    const double shift = -per * static_cast<double>(sums[row]) - slope * stats.rest(row);
    return std::array<T, 4>{factor, stats.mean(row), static_cast<T>(slope), static_cast<T>(shift)};
  };
  const Spread<T, 4, decltype(numbers)> spread(s, args.groups.per_sample, numbers);
  for_channel_blocks(s, 6.0 * static_cast<double>(s.numel()), [&](const ChannelBlock& b) {
    Workspace& scratch = Workspace::begin();
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(b.length); };
    S* out = args.dx.data<S>() + b.offset;
    T* dx = row_out<S>(out, 1, buffer());
    const T* dy = row_in<S>(args.dy.data<S>() + b.offset, 1, b.length, buffer());
    // Statistics that were given: x, which may be infinite, plays no part.
    const T* x = sums == nullptr ? dy : row_in<S>(args.x.data<S>() + b.offset, 1, b.length, buffer());
    if (s.long_rows()) {
      kernel.gradient(dx, dy, x, b.length, numbers(b.sample, b.channel).data());
    } else {
      const auto v = spread.of(b, scratch);
      kernel.gradient_each(dx, dy, x, b.length, v.first, v.term);
    }
    row_done<S>(out, 1, b.length, dx);
  });
}

}  // namespace

void channel_norm(const ChannelNormArgs& args) {
  const char* op = "channel_norm";
  check_channel_data(op, args.x, args.x);
  check_channel_data(op, args.y, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias}) check_channel_vector(op, *v, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void channel_norm_gradient(const ChannelGradientArgs& args) {
  const char* op = "channel_norm_gradient";
  for (const Array* a : {&args.x, &args.dy, &args.dx}) check_channel_data(op, *a, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  if (args.sums.defined()) check_channel_statistics(op, args.sums, 2, args.x, args.groups);
  check_channel_vector(op, args.weight, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace tessera::cpu
