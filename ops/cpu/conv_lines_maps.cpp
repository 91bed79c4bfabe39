// Convolution and its data gradient on channels-last maps, line by line: an output line is the sum, over the
// taps of the outer kernel dims, of small matrix products [outputs, last kernel dim x channels].
//
// The data gradient is one as well: s positions of dx (the stride) at a time count as one position with s
// times the channels, which reads ceil(kernel / s) positions of dy with the taps in reverse.
//
// Where positions are taken together, weights of 0 stand for what one of them does not read. A NaN or an
// infinity there would come to 0 * NaN: a line that comes to a NaN tells, and the call is worked out
// otherwise. So is a gradient with such weights where it would read zeros beyond the map: no window is there.
#include <array>
#include <atomic>
#include <cmath>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_maps.h"
#include "ops/cpu/conv_weights.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kDepth = 96;  // of products at a time: their weights stay in the first-level cache
constexpr std::size_t kPieces = 32;  // that may wait for a product
constexpr double kPieceFlops = 2e6;  // of a job

// What is the same in both directions once source and target are named.
template <class T>
struct LineMaps : ConvMaps<T> {
  using ConvMaps<T>::ConvMaps;
  std::int64_t block = 1;         // positions that count as one,
  std::int64_t repeat = 1;        // so many times what belongs together by itself
  std::int64_t repeat_shift = 0;  // positions of the source between two of these
  std::int64_t first = 0;         // positions of the first block that lie before the line
  std::int64_t blocks = 0;        // in a line
  std::int64_t columns = 0;       // of a block, filled up to whole vectors
  std::int64_t panel = 0;         // columns whose weights lie together
  std::int64_t stride = 1;        // positions of the source from block to block
  std::int64_t taps = 1;          // positions of the source that a block reads,
  std::int64_t dilation = 1;      // so far apart
  Array packed;
  T* weights = nullptr;  // [group][panel of columns][outer tap][tap][source channel][column]

  std::int64_t rows() const { return this->outer_taps() * taps * this->source.channels; }
  std::int64_t group_size() const { return rows() * ceil_div(columns, panel) * panel; }
  // Where a group's weights of a row begin that stand for `column`; `panel` more is the next row.
  std::int64_t place_of(std::int64_t row, std::int64_t column) const {
    return (column - column % panel) * rows() + row * panel + column % panel;
  }
  // Whether some products have a weight that is not the convolution's.
  bool adds_zeros() const {
    return repeat > 1 || (this->backward && this->p.kernel.back() % this->p.stride.back() != 0);
  }
  // Whether blocks may be written where they belong.
  bool direct() const {
    return this->target_channel == 1 && columns == block * this->target_channels && first == 0 &&
           blocks * block == this->target_size && (block == 1 || this->target_step == this->target_channels);
  }
  // The maps' channels and what follows from how blocks are made of them.
  void fit(const Array& from, std::int64_t from_channels, const Array& to, std::int64_t to_channels) {
    this->set_source(from, from_channels);
    this->source.length = (blocks - 1) * stride + dilation * (taps - 1) + 1;
    this->set_target(to, to_channels);
    const std::int64_t width = blocks_of<T>(conv_table()).width;
    columns = ceil_div(block * to_channels, width) * width;
    panel = std::min(columns, blocks_of<T>(conv_table()).panel);
  }
};

// Takes several blocks of so many channels together where that fills the vectors better.
template <class T>
void widen(LineMaps<T>& l, std::int64_t channels) {
  constexpr std::int64_t kMost = 8;
  constexpr double kWorth = 1.15;
  if (l.taps == 1) l.dilation = 1;
  if (l.dilation > 1) return;
  const std::int64_t width = blocks_of<T>(conv_table()).width;
  // Products that count, over those that are done.
  const auto use = [&](std::int64_t m) {
    return static_cast<double>(m * channels * l.taps) /
           static_cast<double>(ceil_div(m * channels, width) * width * ((m - 1) * l.stride + l.taps));
  };
  std::int64_t best = 1;
  for (std::int64_t m = 2; m <= std::min(kMost, l.blocks); ++m)
    if (use(m) > kWorth * use(1) && use(m) > use(best)) best = m;
  l.repeat = best;
  l.repeat_shift = l.stride;
  l.block *= best;
  l.blocks = ceil_div(l.blocks, best);
  l.taps += (best - 1) * l.stride;
  l.stride *= best;
}

template <class T>
void pack(LineMaps<T>& l, const Array& w) {
  const ConvProblem& p = l.p;
  l.packed = Array::empty({p.groups * l.group_size()}, p.dtype);
  l.weights = l.packed.template data<T>();
  std::fill(l.weights, l.weights + l.packed.numel(), T(0));
  const T* data = w.data<T>();
  const std::int64_t step = w.stride(0);
  const std::int64_t s = p.stride.back();
  const std::int64_t own_taps = l.taps - (l.repeat - 1) * l.repeat_shift;
  for (std::int64_t g = 0; g < p.groups; ++g)
    for_each_weight_block(p, w, g, [&](const WeightBlock& b) {
      const T* from = data + b.offset;
      for (std::int64_t r = 0; r < l.repeat; ++r) {
        T* const to = l.weights + g * l.group_size();
        // Tap t of position t mod s is the source's tap t / s, counted from the end.
        const std::int64_t tap =
            b.outer * l.taps + r * l.repeat_shift + (l.backward ? own_taps - 1 - b.last / s : b.last);
        if (l.backward) {
          const std::int64_t column = (r * s + b.last % s) * p.group_in() + b.channel;
          T* at = to + l.place_of(tap * l.source.channels + b.first, column);
          for (std::int64_t i = 0; i < b.count; ++i) at[i * l.panel] = from[i * step];
        } else {
          const std::int64_t row = tap * l.source.channels + b.channel;
          const std::int64_t first = r * p.group_out() + b.first;
          for (std::int64_t i = 0; i < b.count;) {
            const std::int64_t end = std::min(b.count, i + l.panel - (first + i) % l.panel);
            for (T* at = to + l.place_of(row, first + i); i < end; ++i) *at++ = from[i * step];
          }
        }
      }
    });
}

// One group's lines, several after each other.
template <class T>
class MapJob {
 public:
  MapJob(const LineMaps<T>& maps, std::int64_t group)
      : l_(maps), group_(group), space_(Workspace::begin()), source_(of_group(maps, group), space_) {
    if (!l_.direct()) buffer_ = space_.take<T>(l_.blocks * l_.columns);
    bias_ = space_.take<T>(l_.columns);
    std::fill(bias_, bias_ + l_.columns, T(0));
    if (l_.bias == nullptr) return;
    for (std::int64_t i = 0; i < l_.block; ++i)
      for (std::int64_t o = 0; o < l_.target_channels; ++o)
        bias_[i * l_.target_channels + o] = l_.bias[(group * l_.target_channels + o) * l_.bias_step];
  }

  // False: given up for the sake of a NaN.
  bool run(std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      const std::int64_t v = i % l_.target_sizes[1];
      const std::int64_t u = i / l_.target_sizes[1] % l_.target_sizes[0];
      if (!line(i / l_.target_sizes[1] / l_.target_sizes[0], u, v)) return false;
    }
    return true;
  }

 private:
  static SourceMap<T> of_group(const LineMaps<T>& maps, std::int64_t group) {
    SourceMap<T> m = maps.source;
    m.data += group * m.channels * m.channel;
    return m;
  }

  bool line(std::int64_t sample, std::int64_t u, std::int64_t v) {
    T* out = l_.target_line(sample, u, v) + group_ * l_.target_channels * l_.target_channel;
    T* sums = buffer_ == nullptr ? out : buffer_;
    const std::int64_t step = buffer_ == nullptr ? l_.block * l_.target_step : l_.columns;
    begun_ = false;
    for (std::int64_t k = 0; k < l_.o.kernel[0]; ++k) {
      const std::int64_t a = l_.source_line(0, u, k);
      if (a < 0) continue;
      for (std::int64_t m = 0; m < l_.o.kernel[1]; ++m) {
        const std::int64_t b = l_.source_line(1, v, m);
        if (b >= 0) add(sums, step, source_.line(sample, a, b), k * l_.o.kernel[1] + m);
      }
    }
    if (count_ > 0 || !begun_) multiply(sums, step);
    if (l_.adds_zeros() && has_nan(sums, step)) return false;
    if (l_.activation == Activation::None) {
      if (buffer_ != nullptr) write(out);
    } else {
      activate(sums, out, l_.activated + (out - l_.target));
    }
    return true;
  }

  // `line`: where the line is wanted, `activated`: where it is after the activation.
  void activate(T* sums, T* line, T* activated) const {
    const auto f = blocks_of<T>(pointwise_table()).unary[static_cast<std::size_t>(forward_op(l_.activation))];
    const std::int64_t n = l_.blocks * l_.columns;
    if (buffer_ != nullptr) {
      if (line != activated) write(line);
      f(sums, sums, n, T(0), T(0));
      return write(activated);
    }
    const std::int64_t step = l_.block * l_.target_step;
    if (step == l_.columns) return f(activated, sums, n, T(0), T(0));
    for (std::int64_t i = 0; i < l_.blocks; ++i)
      f(activated + i * step, sums + i * step, l_.columns, T(0), T(0));
  }

  bool has_nan(const T* sums, std::int64_t step) const {
    bool found = false;
    for (std::int64_t i = 0; i < l_.blocks; ++i)
      for (std::int64_t c = 0; c < l_.columns; ++c) found |= std::isnan(sums[i * step + c]);
    return found;
  }

  // What an outer tap adds to the sums, sooner or later.
  void add(T* sums, std::int64_t step, const T* x, std::int64_t outer_tap) {
    const std::int64_t channels = l_.source.channels;
    // The taps of neighbouring positions follow each other like channels.
    const bool merged = l_.taps == 1 || (l_.dilation == 1 && source_.step() == channels);
    const std::int64_t depth = merged ? l_.taps * channels : channels;
    const std::int64_t most = ceil_div(depth, ceil_div(depth, kDepth));
    for (std::int64_t t = 0; t < (merged ? 1 : l_.taps); ++t)
      for (std::int64_t k = 0; k < depth; k += most) {
        const std::int64_t n = std::min(most, depth - k);
        if (count_ == kPieces || depth_ + n > kDepth) multiply(sums, step);
        terms_[count_++] = {x + t * l_.dilation * source_.step() + k,
                            (outer_tap * l_.taps + t) * channels + k, n};
        depth_ += n;
      }
  }
  void multiply(T* sums, std::int64_t step) {
    blocks_of<T>(conv_table())
        .map_line({sums, terms_.data(), static_cast<std::int64_t>(count_), begun_ ? nullptr : bias_,
                   l_.weights + group_ * l_.group_size(), l_.rows(), l_.panel, l_.columns, l_.blocks, step,
                   l_.stride * source_.step()});
    begun_ = true;
    count_ = 0;
    depth_ = 0;
  }

  // The blocks' positions that lie in the line.
  void write(T* out) const {
    std::int64_t at = l_.first;  // in the block
    const T* block = buffer_;
    for (std::int64_t i = 0; i < l_.target_size; ++i) {
      const T* from = block + at * l_.target_channels;
      for (std::int64_t c = 0; c < l_.target_channels; ++c)
        out[i * l_.target_step + c * l_.target_channel] = from[c];
      if (++at < l_.block) continue;
      at = 0;
      block += l_.columns;
    }
  }

  const LineMaps<T>& l_;
  std::int64_t group_;
  Workspace& space_;
  SourceLines<T> source_;
  T* buffer_ = nullptr;
  T* bias_ = nullptr;                          // of the columns
  bool begun_ = false;                         // there are sums already
  std::array<ConvTerms<T>, kPieces> terms_{};  // that have yet to be added,
  std::size_t count_ = 0;
  std::int64_t depth_ = 0;  // so many
};

template <class T>
bool run(const LineMaps<T>& l) {
  std::atomic<bool> done{true};
  const std::int64_t lines = l.target_lines();
  const auto wanted = static_cast<std::int64_t>(l.p.flops() / static_cast<double>(l.p.groups) / kPieceFlops);
  const std::int64_t parts = std::clamp<std::int64_t>(wanted, 1, lines);
  parallel_for(l.p.groups * parts, threads_for(l.p.flops()), [&](std::int64_t job) {
    const std::int64_t part = job % parts;
    if (!MapJob<T>(l, job / parts).run(lines * part / parts, lines * (part + 1) / parts)) done = false;
  });
  return done;
}

template <class T>
bool forward(const ConvProblem& p, const ConvArgs& args) {
  LineMaps<T> l(p, outer_dims(p, args.x, args.given()), false);
  l.blocks = p.out.back();
  l.stride = p.stride.back();
  l.taps = p.kernel.back();
  l.dilation = p.dilation.back();
  l.source.before = p.padding_lo.back();
  widen(l, p.group_out());
  l.fit(args.x, p.group_in(), args.given(), p.group_out());
  l.set_bias(args.bias);
  const bool fused = l.set_activation(args);
  pack(l, args.w);
  if (!run(l)) return false;
  if (!fused) activate(args);
  return true;
}

template <class T>
bool backward_data(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  LineMaps<T> l(p, outer_dims(p, args.dx, args.dy), true);
  const std::int64_t s = p.stride.back();
  const std::int64_t pad = p.padding_lo.back();
  const std::int64_t first_block = pad / s;
  l.block = s;
  l.first = pad % s;
  l.blocks = (pad + p.in.back() - 1) / s - first_block + 1;
  l.taps = ceil_div(p.kernel.back(), s);
  l.dilation = p.dilation.back();
  l.source.before = l.dilation * (l.taps - 1) - first_block;
  widen(l, s * p.group_in());
  l.fit(args.dy, p.group_out(), args.dx, p.group_in());
  if (l.source.beyond() && !all_finite<T>(args.w)) return false;
  l.set_bias(args.bias);
  pack(l, args.w);
  return run(l);
}

}  // namespace

bool conv_forward_lines(const ConvProblem& p, const ConvArgs& args) {
  if (is_half(p.dtype)) return false;
  return p.dtype == DType::F64 ? forward<double>(p, args) : forward<float>(p, args);
}

bool conv_backward_data_lines(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  if (is_half(p.dtype) || (p.stride.back() > 1 && p.dilation.back() > 1)) return false;
  return p.dtype == DType::F64 ? backward_data<double>(p, args) : backward_data<float>(p, args);
}

}  // namespace tessera::cpu
