// Depthwise convolution and its data gradient, line by line: a strip of every line at a time, so that all
// lines that a line of outputs reads are in a cache at once. Where windows reach beyond the map they are
// copied, once each, with zeros; between those ends of a line they are read where they lie.
#include <algorithm>
#include <vector>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_maps.h"
#include "ops/cpu/conv_weights.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kStripBytes = 24 << 10;   // of a chunk's source lines that are copied at the same time
constexpr std::int64_t kBlockBytes = 128 << 10;  // of all chunks'
constexpr std::int64_t kPlaceBytes = 256 << 10;  // of all chunks' that are read where they lie
// Positions so far apart, or a multiple of it, share two sets of a first-level cache.
constexpr std::int64_t kFewSets = 2 << 10;
constexpr std::int64_t kStripStep = 8;  // outputs: a multiple of those that are worked out together
constexpr double kPieceFlops = 2e6;     // of a job

// What all jobs share.
template <class T>
struct DepthwiseMaps : ConvMaps<T> {
  DepthwiseMaps(const ConvProblem& problem, const OuterDims& outer, bool data_gradient)
      : ConvMaps<T>(problem, outer, data_gradient), channels(blocks_of<T>(depthwise_table()).channels) {}

  std::int64_t channels;  // of a chunk
  std::int64_t chunks = 0;
  std::int64_t together = 1;  // chunks of a job
  std::int64_t taps = 1;      // of the last dim
  std::int64_t before = 0;    // positions before the line that its first output reads
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  struct Strip {
    std::int64_t first, outputs;
  };
  std::vector<Strip> strips;
  bool in_place = false;  // strips within the map are read where they lie
  Array packed;
  T* weights = nullptr;  // [chunk][outer tap][tap][channel]
  T* biases = nullptr;   // [chunk][channel]

  std::int64_t chunk_size() const { return this->outer_taps() * taps * channels; }
  std::int64_t length(std::int64_t outputs) const {
    return (outputs - 1) * stride + dilation * (taps - 1) + 1;
  }

  std::int64_t chunk_bytes(std::int64_t outputs) const {
    return this->outer_taps() * length(outputs) * channels * static_cast<std::int64_t>(sizeof(T));
  }

  void fit(const Array& from, const Array& to) {
    this->set_source(from, this->p.groups);
    this->set_target(to, this->p.groups);
    chunks = ceil_div(this->p.groups, channels);
    in_place = cut_in_place();
    if (!in_place) cut_by_length();
    // An odd number of cache lines a position: else a chunk's would share few sets of the cache.
    this->source.held_channels = (together | 1) * channels;
  }

 private:
  static std::int64_t round_up(std::int64_t outputs) { return ceil_div(outputs, kStripStep) * kStripStep; }
  // Outputs [from, to) in strips of equal length, of at most `most`.
  void cut(std::int64_t from, std::int64_t to, std::int64_t most) {
    if (from >= to) return;
    const std::int64_t parts = ceil_div(to - from, most);
    const std::int64_t outputs = std::min(most, round_up(ceil_div(to - from, parts)));
    for (; from < to; from += outputs) strips.push_back({from, std::min(outputs, to - from)});
  }
  // Whether a line's outputs within the map are enough to be strips of their own, which are read where they
  // lie; then they are, and what reads beyond its ends are others.
  bool cut_in_place() {
    if (this->source.channel != 1 || this->p.groups % channels != 0) return false;
    if (this->source.step * static_cast<std::int64_t>(sizeof(T)) % kFewSets == 0) return false;
    const std::int64_t size = this->target_size;
    const std::int64_t lo = round_up(ceil_div(std::max<std::int64_t>(before, 0), stride));
    const std::int64_t positions = this->source.size + before - dilation * (taps - 1);  // of first taps
    std::int64_t hi = positions <= 0 ? 0 : std::min(size, (positions - 1) / stride + 1);
    // What is left to the end is enough for a whole step, too.
    if (hi < size) hi = std::max(lo, lo + (std::min(hi, size - kStripStep) - lo) / kStripStep * kStripStep);
    if (hi - lo < kStripStep) return false;

    together = std::clamp<std::int64_t>(kBlockBytes / chunk_bytes(kStripStep), 1, chunks);
    together = ceil_div(chunks, ceil_div(chunks, together));
    std::int64_t most = kStripStep;
    while (most < hi - lo && together * chunk_bytes(most + kStripStep) <= kPlaceBytes) most += kStripStep;
    cut(0, lo, most_copied(lo));
    cut(lo, hi, most);
    cut(hi, size, most_copied(size - hi));
    return true;
  }
  std::int64_t most_copied(std::int64_t size) const {
    std::int64_t most = std::min(size, kStripStep);
    while (most < size && chunk_bytes(most + kStripStep) <= kStripBytes)
      most = std::min(size, most + kStripStep);
    return most;
  }
  void cut_by_length() {
    cut(0, this->target_size, most_copied(this->target_size));
    together = std::clamp<std::int64_t>(kBlockBytes / chunk_bytes(strips[0].outputs), 1, chunks);
  }
};

template <class T>
void pack(DepthwiseMaps<T>& l, const Array& w) {
  const ConvProblem& p = l.p;
  const int last = p.spatial - 1;
  l.packed = Array::zeros({l.chunks * (l.chunk_size() + l.channels)}, p.dtype);
  l.weights = l.packed.template data<T>();
  l.biases = l.weights + l.chunks * l.chunk_size();
  for (std::int64_t c = 0; c < p.groups; ++c) {
    const T* filter = w.data<T>() + c * w.stride(0);
    T* to = l.weights + c / l.channels * l.chunk_size() + c % l.channels;
    for (std::int64_t outer = 0; outer < l.outer_taps(); ++outer) {
      const T* line = filter;
      std::int64_t rest = outer;
      for (int d = last - 1; d >= 0; rest /= p.kernel[d--]) line += rest % p.kernel[d] * w.stride(d + 2);
      for (std::int64_t t = 0; t < l.taps; ++t, to += l.channels)
        *to = line[(l.backward ? l.taps - 1 - t : t) * w.stride(last + 2)];
    }
    if (l.bias != nullptr) l.biases[c] = l.bias[c * l.bias_step];
  }
}

// A strip of some chunks' lines, several after each other.
template <class T>
class DepthwiseJob {
 public:
  DepthwiseJob(const DepthwiseMaps<T>& maps, std::int64_t block, std::size_t strip)
      : l_(maps),
        chunk_(block * maps.together),
        chunks_(std::min(maps.together, maps.chunks - chunk_)),
        channels_(std::min(chunks_ * maps.channels, maps.p.groups - chunk_ * maps.channels)),
        first_(maps.strips[strip].first),
        outputs_(maps.strips[strip].outputs),
        space_(Workspace::begin()),
        source_(source_of(), space_),
        x_(space_.take<const T*>(maps.outer_taps() * maps.taps)),
        w_(space_.take<const T*>(maps.outer_taps() * maps.taps)),
        buffer_(space_.take<T>(outputs_ * maps.channels * chunks_)) {}

  void run(std::int64_t from, std::int64_t to) {
    for (std::int64_t i = from; i < to; ++i) {
      if (i == from) begin(i);
      const std::int64_t lines = read_lines(place_of(i));
      if (i + 1 < to) begin(i + 1);
      work_out(line_of(i), lines);
    }
  }

 private:
  SourceMap<T> source_of() const {
    SourceMap<T> m = l_.source;
    m.data += chunk_ * l_.channels * m.channel;
    m.channels = channels_;
    m.before = l_.before - first_ * l_.stride;
    m.length = l_.length(outputs_);
    if (l_.in_place && !m.beyond()) m.held_channels = 0;
    return m;
  }

  struct Place {
    std::int64_t sample, u, v;
  };
  Place place_of(std::int64_t line) const {
    const std::int64_t plane = line / l_.target_sizes[1];
    return {plane / l_.target_sizes[0], plane % l_.target_sizes[0], line % l_.target_sizes[1]};
  }
  T* line_of(std::int64_t line) const {
    const Place at = place_of(line);
    return l_.target_line(at.sample, at.u, at.v) + first_ * l_.target_step +
           chunk_ * l_.channels * l_.target_channel;
  }
  // f(source line's two places, outer tap) for all that a line reads.
  template <class F>
  void each_line(const Place& at, const F& f) const {
    for (std::int64_t k = 0; k < l_.o.kernel[0]; ++k) {
      const std::int64_t a = l_.source_line(0, at.u, k);
      for (std::int64_t m = 0; a >= 0 && m < l_.o.kernel[1]; ++m) {
        const std::int64_t b = l_.source_line(1, at.v, m);
        if (b >= 0) f(a, b, k * l_.o.kernel[1] + m);
      }
    }
  }
  // Has the caches fetch what the line will read and write, while the one before it is worked out: strips are
  // too short for them to find out themselves.
  void begin(std::int64_t line) const {
    const Place at = place_of(line);
    each_line(
        at, [&](std::int64_t a, std::int64_t b, std::int64_t /*tap*/) { source_.announce(at.sample, a, b); });
    if (l_.target_channel != 1) return;
    const T* out = line_of(line);
    for (std::int64_t i = 0; i < outputs_; ++i)
      for (std::int64_t c = 0; c < chunks_ * l_.channels; c += l_.channels)
        __builtin_prefetch(out + i * l_.target_step + c, 1);
  }
  std::int64_t read_lines(const Place& at) {
    std::int64_t lines = 0;
    each_line(at, [&](std::int64_t a, std::int64_t b, std::int64_t tap) {
      take_taps(lines++, source_.line(at.sample, a, b), tap);
    });
    return lines;
  }
  void take_taps(std::int64_t line, const T* x, std::int64_t outer_tap) {
    const T* w = l_.weights + chunk_ * l_.chunk_size() + outer_tap * l_.taps * l_.channels;
    for (std::int64_t t = 0; t < l_.taps; ++t) {
      x_[line * l_.taps + t] = x + t * l_.dilation * source_.step();
      w_[line * l_.taps + t] = w + t * l_.channels;
    }
  }

  void work_out(T* out, std::int64_t lines) {
    const std::int64_t row = chunks_ * l_.channels;
    const bool direct = l_.target_channel == 1 && channels_ == row && l_.activation == Activation::None;
    blocks_of<T>(depthwise_table())
        .line({direct ? out : buffer_, x_, w_, l_.biases + chunk_ * l_.channels, chunks_, l_.chunk_size(),
               lines, l_.taps, outputs_, direct ? l_.target_step : row, l_.stride * source_.step(),
               l_.dilation == l_.stride});
    if (direct) return;
    if (l_.activation == Activation::None) return write(out);
    T* activated = l_.activated + (out - l_.target);
    if (activated != out) write(out);
    const auto f = blocks_of<T>(pointwise_table()).unary[static_cast<std::size_t>(forward_op(l_.activation))];
    f(buffer_, buffer_, outputs_ * row, T(0), T(0));
    write(activated);
  }

  void write(T* out) const {
    for (std::int64_t i = 0; i < outputs_; ++i)
      for (std::int64_t c = 0; c < channels_; ++c)
        out[i * l_.target_step + c * l_.target_channel] = buffer_[i * chunks_ * l_.channels + c];
  }

  const DepthwiseMaps<T>& l_;
  std::int64_t chunk_;
  std::int64_t chunks_;
  std::int64_t channels_;
  std::int64_t first_;  // output of the strip
  std::int64_t outputs_;
  Workspace& space_;
  SourceLines<T> source_;
  const T** x_;  // of every tap that a line reads: the source at its first output,
  const T** w_;  // and the weights
  T* buffer_;
};

template <class T>
void run(const DepthwiseMaps<T>& l) {
  const std::int64_t blocks = ceil_div(l.chunks, l.together);
  const std::int64_t columns = blocks * static_cast<std::int64_t>(l.strips.size());
  const auto wanted = static_cast<std::int64_t>(l.p.flops() / static_cast<double>(columns) / kPieceFlops);
  const std::int64_t lines = l.target_lines();
  const std::int64_t parts = std::clamp<std::int64_t>(wanted, 1, lines);
  parallel_for(columns * parts, threads_for(l.p.flops()), [&](std::int64_t job) {
    const std::int64_t part = job / columns;
    DepthwiseJob<T>(l, job % blocks, static_cast<std::size_t>(job % columns / blocks))
        .run(lines * part / parts, lines * (part + 1) / parts);
  });
}

template <class T>
void forward(const ConvProblem& p, const ConvArgs& args) {
  DepthwiseMaps<T> l(p, outer_dims(p, args.x, args.given()), false);
  l.taps = p.kernel.back();
  l.stride = p.stride.back();
  l.dilation = p.dilation.back();
  l.before = p.padding_lo.back();
  l.fit(args.x, args.given());
  l.set_bias(args.bias);
  const bool fused = l.set_activation(args);
  pack(l, args.w);
  run(l);
  if (!fused) activate(args);
}

// False: weights that are not finite would meet zeros beyond the map, where no window is.
template <class T>
bool backward_data(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  DepthwiseMaps<T> l(p, outer_dims(p, args.dx, args.dy), true);
  l.taps = p.kernel.back();
  l.dilation = p.dilation.back();
  l.before = l.dilation * (l.taps - 1) - p.padding_lo.back();
  l.fit(args.dy, args.dx);
  const bool beyond = l.before > 0 || l.length(l.target_size) - l.before > l.source.size;
  if (beyond && !all_finite<T>(args.w)) return false;
  l.set_bias(args.bias);
  pack(l, args.w);
  run(l);
  return true;
}

// A strip that reads hundreds of positions for its few outputs copies more than it computes.
bool reaches_far(const ConvProblem& p) {
  constexpr std::int64_t kFar = 256;
  return p.dilation.back() * (p.kernel.back() - 1) > kFar;
}

}  // namespace

bool conv_forward_depthwise(const ConvProblem& p, const ConvArgs& args) {
  if (!is_depthwise(p) || is_half(p.dtype) || reaches_far(p)) return false;
  (p.dtype == DType::F64 ? forward<double> : forward<float>)(p, args);
  return true;
}

bool conv_backward_data_depthwise(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  if (!is_depthwise(p) || is_half(p.dtype) || reaches_far(p) || p.stride.back() > 1) return false;
  return p.dtype == DType::F64 ? backward_data<double>(p, args) : backward_data<float>(p, args);
}

}  // namespace tessera::cpu
