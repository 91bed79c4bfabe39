// Convolutions of a few products, and their data gradients: every result is summed up by itself, at a list of
// places, over a list of terms. Weights become rows of results, one a term. A gradient's result sees every
// stride-th tap, others those between, so that there is a list for each of these parts. What windows read
// beyond a map, or in a type of 16 bits, is read from a copy with zeros around it; any other map is read as
// it lies. Where weights are not finite, which zeros would make NaN of, each result has a list of its own, of
// what lies inside. Types of 16 bits are worked out as f32.
#include <algorithm>
#include <array>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_problem.h"
#include "ops/cpu/conv_source.h"
#include "ops/cpu/conv_weights.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"

namespace tessera::cpu {

namespace {

constexpr double kFewFlops = 1e4;
constexpr std::int64_t kMostElements = 4096;  // of a map that is copied
constexpr std::int64_t kMostSums = 128;       // vectors of results: lines put more of a narrow map in each

// Channels of the map are summed over, into those of the result.
struct FewCall {
  const ConvProblem& p;
  const Array& map;
  const Array& w;
  const Array& bias;
  const Array& result;
  bool gradient = false;                     // the map is dy, the result dx
  Activation activation = Activation::None;  // of the sums before they are rounded
};

// One spatial dim of the map, the result and the kernel.
struct FewDim {
  std::int64_t map = 1, result = 1, kernel = 1;
  std::int64_t stride = 1, padding = 0, dilation = 1;
  std::int64_t map_step = 0, result_step = 0;  // in memory
  std::int64_t parts = 1;                      // every so many results see the same taps
  std::int64_t before = 0, after = 0;          // what is read beyond the map
  bool inside = false;                         // zeros beyond it are left out

  std::int64_t framed() const { return before + map + after; }
  std::int64_t places(std::int64_t part) const { return ceil_div(result - part, parts); }
};
using FewDims = std::array<FewDim, 3>;  // the last one last

FewDims few_dims(const FewCall& c) {
  const ConvProblem& p = c.p;
  FewDims dims;
  for (int s = 0; s < p.spatial; ++s) {
    FewDim& d = dims[static_cast<std::size_t>(3 - p.spatial) + static_cast<std::size_t>(s)];
    d = {p.in[s],         p.out[s],      p.kernel[s],         p.stride[s],
         p.padding_lo[s], p.dilation[s], c.map.stride(s + 2), c.result.stride(s + 2)};
    const std::int64_t reach = (d.kernel - 1) * d.dilation;
    std::int64_t before = d.padding;
    std::int64_t last = (d.result - 1) * d.stride - d.padding + reach;  // that is read
    if (c.gradient) {
      std::swap(d.map, d.result);
      d.parts = d.stride;
      before = reach > d.padding ? ceil_div(reach - d.padding, d.stride) : 0;
      last = (d.result - 1 + d.padding) / d.stride;
    }
    d.before = before;
    d.after = std::max<std::int64_t>(0, last - d.map + 1);
  }
  return dims;
}

// One filter a channel: all groups at once.
bool is_own(const ConvProblem& p) { return p.groups > 1 && p.group_in() == 1 && p.group_out() == 1; }

template <class S>
class FewSums {
  using T = Compute<S>;

 public:
  FewSums(const FewCall& c, const FewDims& dims)
      : c_(c),
        dims_(dims),
        own_(is_own(c.p)),
        passes_(own_ ? 1 : c.p.groups),
        channels_(c.map.size(1) / passes_),
        taps_(numel_of(c.p.kernel)),
        w_(c.w.is_contiguous() ? c.w : c.w.contiguous()) {
    k_.outputs = c.result.size(1) / passes_;
    k_.columns = ceil_div(k_.outputs, width()) * width();
    k_.y_channel = channel_step(c.result);
    terms_ = own_ ? taps_ : channels_ * taps_;
    places_ = dims[0].result * dims[1].result * dims[2].result;
    take_space(Workspace::begin());
    list_parts();
  }
  static std::int64_t width() { return blocks_of<T>(conv_table()).width; }

  void run() {
    for (std::int64_t g = 0; g < passes_; ++g) {
      pack(g);
      for (std::int64_t n = 0; n < c_.p.samples; ++n) {
        const S* map = c_.map.template data<S>() + n * c_.map.stride(0) + g * channels_ * c_.map.stride(1);
        S* result =
            c_.result.template data<S>() + n * c_.result.stride(0) + g * k_.outputs * c_.result.stride(1);
        if constexpr (!kHalf<S>) {
          if (map_ == nullptr) k_.x = map;
          k_.y = result;
        }
        if (map_ != nullptr) copy(map);
        sum_parts();
        if constexpr (kHalf<S>) round_to(result);
      }
    }
  }

 private:
  struct Part {
    std::int64_t places, terms;
  };

  void take_space(Workspace& space) {
    weights_ = space.take<T>(terms_ * k_.columns);
    bias_ = space.take<T>(k_.columns);
    from_ = space.take<std::int64_t>(places_);
    to_ = space.take<std::int64_t>(places_);
    list_ = space.take<ConvTerm>(dims_[0].inside ? places_ * terms_ : terms_);
    parts_ = space.take<Part>(places_);
    const bool half_a_vector = k_.outputs == 4 && k_.columns == 8;  // which packing fills up
    if (k_.outputs < k_.columns && !half_a_vector) std::fill(weights_, weights_ + terms_ * k_.columns, T(0));
    std::fill(bias_, bias_ + k_.columns, T(0));
    k_.bias = bias_;
    bool framed = false;
    for (std::size_t d = 0; d < 3; ++d) {
      framed = framed || dims_[d].framed() > dims_[d].map;
      step_[d] = dims_[d].map_step;
      result_step_[d] = dims_[d].result_step;
    }
    channel_ = channel_step(c_.map);
    if (framed || own_ || kHalf<S>) take_frame(space, framed);
    if constexpr (kHalf<S>) {
      sums_ = space.take<T>(places_ * k_.outputs);
      k_.y = sums_;
      k_.y_channel = 1;
      result_step_[2] = k_.outputs;
      result_step_[1] = dims_[2].result * result_step_[2];
      result_step_[0] = dims_[1].result * result_step_[1];
    }
  }

  // The copy lies as the map does, but for one filter a channel, which is read in vectors of channels.
  void take_frame(Workspace& space, bool framed) {
    const bool lines = !own_ && dims_[2].map_step == 1;
    const std::int64_t last = own_ ? k_.columns : channels_;
    step_[2] = lines ? 1 : last;
    step_[1] = dims_[2].framed() * step_[2];
    step_[0] = dims_[1].framed() * step_[1];
    const std::int64_t all = dims_[0].framed() * step_[0];
    channel_ = lines ? all : 1;
    const std::int64_t size = lines ? channels_ * all : all;
    map_ = space.take<T>(size);
    k_.x = map_;
    if (framed || last > channels_) std::fill(map_, map_ + size, T(0));
  }

  void list_parts() {
    std::int64_t* from = from_;
    std::int64_t* to = to_;
    ConvTerm* term = list_;
    Part* part = parts_;
    const auto [a, b, c] = dims_;
    for (std::int64_t i = 0; i < std::min(a.parts, a.result); ++i)
      for (std::int64_t j = 0; j < std::min(b.parts, b.result); ++j)
        for (std::int64_t k = 0; k < std::min(c.parts, c.result); ++k) {
          const std::array<std::int64_t, 3> first{i, j, k};
          const std::int64_t* const from_start = from;
          const ConvTerm* const term_start = term;
          list_places(first, from, to);
          list_terms(first, term);
          *part++ = {from - from_start, term - term_start};
        }
    part_count_ = part - parts_;
  }
  void list_places(const std::array<std::int64_t, 3>& first, std::int64_t*& from, std::int64_t*& to) const {
    std::int64_t n[3], x[3], y[3];
    std::int64_t start = 0;
    for (std::size_t d = 0; d < 3; ++d) {
      n[d] = dims_[d].places(first[d]);
      x[d] = step_[d] * (c_.gradient ? 1 : dims_[d].stride);
      y[d] = result_step_[d] * dims_[d].parts;
      start += first[d] * result_step_[d];
    }
    for (std::int64_t i = 0; i < n[0]; ++i)
      for (std::int64_t j = 0; j < n[1]; ++j)
        for (std::int64_t k = 0; k < n[2]; ++k) {
          *from++ = i * x[0] + j * x[1] + k * x[2];
          *to++ = start + i * y[0] + j * y[1] + k * y[2];
        }
  }
  // Where tap t of the first result of a part reads, in the frame; below 0: nowhere.
  std::int64_t read_by(std::size_t d, std::int64_t first, std::int64_t t) const {
    const FewDim& dim = dims_[d];
    std::int64_t at = first * dim.stride + t * dim.dilation;
    if (c_.gradient) {
      at = first + dim.padding - t * dim.dilation + dim.before * dim.stride;
      if (dim.stride > 1 && at % dim.stride != 0) return -1;
      if (dim.stride > 1) at /= dim.stride;
    }
    return dim.inside && (at < dim.before || at >= dim.before + dim.map) ? -1 : at;
  }
  void list_terms(const std::array<std::int64_t, 3>& first, ConvTerm*& term) const {
    const std::int64_t channels = own_ ? 1 : channels_;
    const std::int64_t row = taps_ * k_.columns;  // from channel to channel
    std::int64_t tap = 0;
    for (std::int64_t i = 0; i < dims_[0].kernel; ++i) {
      const std::int64_t u = read_by(0, first[0], i);
      for (std::int64_t j = 0; j < dims_[1].kernel; ++j) {
        const std::int64_t v = read_by(1, first[1], j);
        for (std::int64_t k = 0; k < dims_[2].kernel; ++k, tap += k_.columns) {
          const std::int64_t w = u < 0 || v < 0 ? -1 : read_by(2, first[2], k);
          if (w < 0) continue;
          const std::int64_t at = u * step_[0] + v * step_[1] + w * step_[2];
          for (std::int64_t c = 0; c < channels; ++c) *term++ = {at + c * channel_, tap + c * row};
        }
      }
    }
  }

  void sum_parts() {
    const auto& blocks = blocks_of<T>(conv_table());
    k_.w = weights_;
    k_.from = from_;
    k_.to = to_;
    k_.terms = list_;
    for (std::int64_t i = 0; i < part_count_; ++i) {
      k_.places = parts_[i].places;
      k_.count = parts_[i].terms;
      (own_ ? blocks.channel_sums : blocks.sums)(k_);
      k_.from += k_.places;
      k_.to += k_.places;
      k_.terms += k_.count;
    }
  }

  // The weights of group g, row [channel][tap], and its bias.
  void pack(std::int64_t g) const {
    const S* from = w_.template data<S>() + g * terms_ * k_.outputs;
    if (own_ || !c_.gradient) {
      pack_columns(weights_, from, terms_);
    } else {
      for (std::int64_t o = 0; o < channels_; ++o, from += k_.outputs * taps_)
        pack_columns(weights_ + o * taps_ * k_.columns, from, taps_);
    }
    if (!c_.bias.defined()) return;
    load_block(bias_, c_.bias.template data<S>() + g * k_.outputs * c_.bias.stride(0), c_.bias.stride(0),
               k_.outputs);
  }
  // All columns of n rows; each column lies in one piece.
  void pack_columns(T* to, const S* from, std::int64_t n) const {
    std::int64_t o = 0;
    if (k_.outputs == 4 && k_.columns == 8) {
      for (std::int64_t t = 0; t < n; ++t, to += 8)
        for (std::int64_t i = 0; i < 8; ++i) to[i] = i < 4 ? static_cast<T>(from[i * n + t]) : T(0);
      return;
    }
    for (; o + 4 <= k_.outputs; o += 4, from += 4 * n)
      for (std::int64_t t = 0; t < n; ++t)
        for (std::int64_t i = 0; i < 4; ++i) to[t * k_.columns + o + i] = static_cast<T>(from[i * n + t]);
    for (; o < k_.outputs; ++o, from += n)
      for (std::int64_t t = 0; t < n; ++t) to[t * k_.columns + o] = static_cast<T>(from[t]);
  }

  // One sample's channels of the group.
  void copy(const S* x) const {
    const auto& [a, b, last] = dims_;
    const std::int64_t step = channel_step(c_.map);
    const bool dense = step == 1 && channel_ == 1 && last.map_step == channels_ && step_[2] == channels_;
    T* const start = map_ + a.before * step_[0] + b.before * step_[1] + last.before * step_[2];
    for (std::int64_t i = 0; i < a.map; ++i)
      for (std::int64_t j = 0; j < b.map; ++j) {
        T* to = start + i * step_[0] + j * step_[1];
        const S* from = x + i * a.map_step + j * b.map_step;
        if (dense) {
          load_block(to, from, 1, last.map * channels_);
          continue;
        }
        for (std::int64_t c = 0; c < channels_; ++c)
          for (std::int64_t k = 0; k < last.map; ++k)
            to[c * channel_ + k * step_[2]] = static_cast<T>(from[c * step + k * last.map_step]);
      }
  }
  void round_to(S* y) const {
    if (c_.activation != Activation::None)
      blocks_of<T>(pointwise_table())
          .unary[static_cast<std::size_t>(forward_op(c_.activation))](sums_, sums_, places_ * k_.outputs,
                                                                      T(0), T(0));
    const T* from = sums_;
    const std::int64_t step = channel_step(c_.result);
    for (std::int64_t i = 0; i < dims_[0].result; ++i)
      for (std::int64_t j = 0; j < dims_[1].result; ++j)
        for (std::int64_t k = 0; k < dims_[2].result; ++k, from += k_.outputs)
          store_block(y + i * dims_[0].result_step + j * dims_[1].result_step + k * dims_[2].result_step,
                      step, from, k_.outputs);
  }

  const FewCall& c_;
  const FewDims& dims_;
  bool own_;
  std::int64_t passes_;  // groups, one at a time
  std::int64_t channels_;
  std::int64_t taps_;
  Array w_;
  std::int64_t terms_ = 0, places_ = 0, part_count_ = 0;
  std::int64_t step_[3], result_step_[3];  // of what is read and summed up
  std::int64_t channel_ = 1;               // and of what is read from channel to channel
  ConvSums<T> k_{};
  T* weights_ = nullptr;
  T* bias_ = nullptr;
  std::int64_t* from_ = nullptr;
  std::int64_t* to_ = nullptr;
  ConvTerm* list_ = nullptr;
  Part* parts_ = nullptr;
  T* map_ = nullptr;  // the copy
  T* sums_ = nullptr;
};

// False where there are too many products.
template <class S>
bool sum_few(const FewCall& c) {
  const ConvProblem& p = c.p;
  if (p.flops() > kFewFlops) return false;
  FewDims dims = few_dims(c);
  const std::int64_t passes = is_own(p) ? 1 : p.groups;
  std::int64_t sums = p.samples * passes * ceil_div(c.result.size(1) / passes, FewSums<S>::width());
  std::int64_t framed = c.map.size(1) / passes;
  bool beyond = false;
  for (const FewDim& d : dims) {
    sums *= d.result;
    framed *= d.framed();
    beyond = beyond || d.framed() > d.map;
  }
  if (sums > kMostSums || framed > kMostElements) return false;
  if (beyond && !all_finite<S>(c.w))
    for (FewDim& d : dims) {
      d.inside = true;
      d.parts = d.result;
    }
  FewSums<S>(c, dims).run();
  return true;
}

bool sum_few_of(const FewCall& c) {
  switch (c.p.dtype) {
    case DType::F64:
      return sum_few<double>(c);
    case DType::BF16:
      return sum_few<bf16>(c);
    case DType::F16:
      return sum_few<f16>(c);
    default:
      return sum_few<float>(c);
  }
}

}  // namespace

bool conv_forward_few(const ConvProblem& p, const ConvArgs& args) {
  // An activation sees what was summed up before it is rounded, unless that is wanted.
  const bool at_once = is_half(p.dtype) && !args.z.defined();
  const Activation within = at_once ? args.activation : Activation::None;
  if (!sum_few_of({p, args.x, args.w, args.bias, args.given(), false, within})) return false;
  if (!at_once) activate(args);
  return true;
}

bool conv_backward_data_few(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  return sum_few_of({p, args.dy, args.w, args.bias, args.dx, true});
}

}  // namespace tessera::cpu
