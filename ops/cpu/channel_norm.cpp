#include "ops/cpu/channel_norm.h"

#include "ops/cpu/channel_rows.h"
#include "runtime/error.h"

namespace tessera::cpu {

void check_channel_data(const char* op, const Array& x, const Array& like) {
  TS_CHECK(x.dim() == 3 && x.sizes() == like.sizes() && x.dtype() == like.dtype() && is_floating(x.dtype()) &&
               (row_major_samples(like) ? row_major_samples(x) && (x.size(0) == 1 || x.numel() == 0 ||
                                                                   x.stride(0) == like.stride(0))
                                        : channels_innermost(x)),
           op, "operand {} {} with strides {}; floating data like {} [N, C, S] with strides {} are needed",
           name_of(x.dtype()), x.sizes().str(), x.strides().str(), like.sizes().str(), like.strides().str());
}

bool row_major_samples(const Array& x) {
  if (x.dim() != 3 || x.is_contiguous()) return x.dim() == 3;
  return x.size(2) > 1 && x.stride(2) == 1 && (x.size(1) == 1 || x.stride(1) == x.size(2));
}

bool channels_innermost(const Array& x) {
  return x.dim() == 3 && (x.size(1) == 1 || x.stride(1) == 1) && (x.size(2) == 1 || x.stride(2) == x.size(1));
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
  std::array<T, terms> number(std::int64_t n, std::int64_t c) const { return of_(n, c); }
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

// y = (x - mean) scale + shift on a block; `spread` is of these three numbers.
template <class T, class Spread>
void normalize_block(const ChannelShape& s, const ChannelBlock& b, T* y, const T* x, const Spread& spread,
                     Workspace& scratch) {
  const auto& kernel = blocks_of<T>(norm_table());
  if (s.long_rows()) {
    const auto [mean, scale, shift] = spread.number(b.sample, b.channel);
    kernel.normalize(y, x, b.length, mean, scale, shift);
  } else {
    const auto v = spread.of(b, scratch);
    kernel.normalize_each(y, x, b.length, v.first, v.first + v.term, v.first + 2 * v.term);
  }
}

template <class S>
void forward(const ChannelNormArgs& args) {
  using T = Compute<S>;
  const ChannelShape s(args.x);
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const auto of = [&](std::int64_t n, std::int64_t c) { return numbers.forward(n, c); };
  const Spread<T, 3, decltype(of)> spread(s, args.groups.per_sample, of);
  const bool past = past_caches(args.y, {&args.x});
  const auto body = [&](const ChannelBlock& b) {
    Workspace& scratch = Workspace::begin();
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(b.length); };
    const BlockSink<S> out(args.y.data<S>(), past, b.length, scratch);
    T* y = out.place(b.offset);
    const T* x = row_in<S>(args.x.data<S>() + b.offset, 1, b.length, buffer());
    normalize_block(s, b, y, x, spread, scratch);
    activation.apply(y, b.length);
    out.done(b.offset, b.length, y);
  };
  for_channel_blocks(s, {4.0 * static_cast<double>(s.numel()), true, past}, body);
}

template <class S>
void backward(const ChannelGradientArgs& args) {
  using T = Compute<S>;
  const ChannelShape s(args.x);
  const ChannelNumbers<S> numbers(args);
  const BlockActivation<T> activation(args.activation);
  const T* sums = args.sums.defined() ? args.sums.data<T>() : nullptr;
  const auto& kernel = blocks_of<T>(norm_table());
  const auto of = [&](std::int64_t n, std::int64_t c) { return numbers.gradient(n, c, sums); };
  const Spread<T, 4, decltype(of)> spread(s, args.groups.per_sample, of);
  const auto before = [&](std::int64_t n, std::int64_t c) { return numbers.forward(n, c); };
  const Spread<T, 3, decltype(before)> spread_before(s, args.groups.per_sample || !activation, before);
  const bool past = past_caches(args.dx, {&args.dy, &args.x});
  const auto body = [&](const ChannelBlock& b) {
    Workspace& scratch = Workspace::begin();
    const auto buffer = [&] { return std::is_same_v<S, T> ? nullptr : scratch.take<T>(b.length); };
    const BlockSink<S> out(args.dx.data<S>(), past, b.length, scratch);
    T* dx = out.place(b.offset);
    const T* dy = row_in<S>(args.dy.data<S>() + b.offset, 1, b.length, buffer());
    // Statistics that were given: x, which may be infinite, plays no part.
    const T* x =
        sums == nullptr && !activation ? dy : row_in<S>(args.x.data<S>() + b.offset, 1, b.length, buffer());
    if (activation) {
      T* z = scratch.take<T>(b.length);
      normalize_block(s, b, z, x, spread_before, scratch);
      dy = activation.gradient(z, dy, b.length);
      if (sums == nullptr) x = dy;
    }
    if (s.long_rows()) {
      kernel.gradient(dx, dy, x, b.length, spread.number(b.sample, b.channel).data());
    } else {
      const auto v = spread.of(b, scratch);
      kernel.gradient_each(dx, dy, x, b.length, v.first, v.term);
    }
    out.done(b.offset, b.length, dx);
  };
  for_channel_blocks(s, {6.0 * static_cast<double>(s.numel()), true, past}, body);
}

}  // namespace

void channel_norm(const ChannelNormArgs& args) {
  const char* op = "channel_norm";
  check_channel_data(op, args.x, args.x);
  check_channel_data(op, args.y, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias}) check_channel_vector(op, *v, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    row_major_samples(args.x) ? forward<S>(args) : normalize_rows<S>(args);
  });
}

void channel_norm_gradient(const ChannelGradientArgs& args) {
  const char* op = "channel_norm_gradient";
  for (const Array* a : {&args.x, &args.dy, &args.dx}) check_channel_data(op, *a, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  if (args.sums.defined()) check_channel_statistics(op, args.sums, 2, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias}) check_channel_vector(op, *v, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    row_major_samples(args.x) ? backward<S>(args) : gradient_rows<S>(args);
  });
}

}  // namespace tessera::cpu
