// Forward convolutions of a few products: a group's weights become rows of output channels, and every window
// is summed up by itself from the taps that lie inside. Types of 16 bits are worked out as f32.
#include <algorithm>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_few.h"
#include "ops/cpu/conv_source.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kMostElements = 4096;  // of a map that is copied
constexpr std::int64_t kMostSums = 64;        // vectors of outputs: lines put more of a narrow map in each

template <class T>
bool has_few_sums(const ConvProblem& p) {
  const std::int64_t vectors = ceil_div(p.group_out(), blocks_of<T>(conv_table()).width);
  return p.flops() <= kFewFlops && p.samples * p.groups * numel_of(p.out) * vectors <= kMostSums &&
         numel_of(p.in) * p.group_in() <= kMostElements;
}

// Elements from each of the kernel's positions to the next; 0: it differs. Dims of size 1 may have any
// stride.
std::int64_t tap_step(const Array& w) {
  std::int64_t step = 0;
  std::int64_t next = 0;
  for (int d = w.dim() - 1; d >= 2; --d) {
    if (w.size(d) == 1) continue;
    if (w.stride(d) == 0) return 0;
    if (step == 0) {
      step = w.stride(d);
    } else if (w.stride(d) != next) {
      return 0;
    }
    next = w.stride(d) * w.size(d);
  }
  return step == 0 ? 1 : step;
}

template <class S>
class FewSums {
  using T = Compute<S>;

 public:
  FewSums(const ConvProblem& p, const ConvArgs& args)
      : p_(p),
        a_(args),
        y_(args.given()),
        w_(tap_step(args.w) != 0 ? args.w : args.w.contiguous()),
        s_(p, args.x, args.w, args.given()),
        taps_(numel_of(p.kernel)),
        copied_(kHalf<S> || p.groups > 1 || channel_step(args.x) != 1 || s_.x[2] != p.in_channels) {
    const std::int64_t width = blocks_of<T>(conv_table()).width;
    c_.columns = ceil_div(p.group_out(), width) * width;
    c_.channels = p.group_in();
    c_.outputs = p.group_out();
    for (int d = 0; d < 3; ++d) {
      c_.out[d] = s_.out[d];
      c_.in[d] = s_.in[d];
      c_.kernel[d] = s_.kernel[d];
      c_.stride[d] = s_.stride[d];
      c_.padding[d] = s_.padding[d];
      c_.dilation[d] = s_.dilation[d];
      c_.x_step[d] = s_.x[d];
      c_.y_step[d] = s_.y[d];
    }
    c_.y_channel = channel_step(y_);
    take_space();
  }

  void run() {
    for (std::int64_t g = 0; g < p_.groups; ++g) {
      pack(g);
      for (std::int64_t n = 0; n < p_.samples; ++n) {
        const S* x = a_.x.template data<S>() + n * a_.x.stride(0) + g * p_.group_in() * a_.x.stride(1);
        S* y = y_.template data<S>() + n * y_.stride(0) + g * p_.group_out() * y_.stride(1);
        if (copied_) copy(x);
        if constexpr (kHalf<S>) {
          blocks_of<T>(conv_table()).windows(c_);
          round_to(y);
        } else {
          if (!copied_) c_.x = x;
          c_.y = y;
          blocks_of<T>(conv_table()).windows(c_);
        }
      }
    }
    if (!activates_sums()) activate(a_);
  }

 private:
  // The activation sees what was summed up before it is rounded, unless that is wanted.
  bool activates_sums() const { return kHalf<S> && a_.activation != Activation::None && !a_.z.defined(); }

  void take_space() {
    Workspace& space = Workspace::begin();
    weights_ = space.take<T>(taps_ * c_.channels * c_.columns);
    bias_ = space.take<T>(c_.columns);
    std::fill(weights_, weights_ + taps_ * c_.channels * c_.columns, T(0));
    std::fill(bias_, bias_ + c_.columns, T(0));
    c_.w = weights_;
    c_.bias = bias_;
    if (copied_) {
      map_ = space.take<T>(numel_of(p_.in) * c_.channels);
      c_.x = map_;
      set_steps(c_.x_step, c_.in, c_.channels);
    }
    if (!kHalf<S>) return;
    sums_ = space.take<T>(numel_of(p_.out) * c_.outputs);
    c_.y = sums_;
    c_.y_channel = 1;
    set_steps(c_.y_step, c_.out, c_.outputs);
  }
  static void set_steps(std::int64_t* steps, const std::int64_t* sizes, std::int64_t channels) {
    steps[2] = channels;
    steps[1] = sizes[2] * steps[2];
    steps[0] = sizes[1] * steps[1];
  }

  // The group's weights as [tap][input channel][output channel], and its bias.
  void pack(std::int64_t g) const {
    const std::int64_t step = tap_step(w_);
    const std::int64_t row = c_.channels * c_.columns;
    for (std::int64_t o = 0; o < c_.outputs; ++o)
      for (std::int64_t c = 0; c < c_.channels; ++c) {
        const S* from = w_.template data<S>() + (g * c_.outputs + o) * w_.stride(0) + c * w_.stride(1);
        T* to = weights_ + c * c_.columns + o;
        for (std::int64_t t = 0; t < taps_; ++t, from += step, to += row) *to = static_cast<T>(*from);
      }
    if (!a_.bias.defined()) return;
    load_block(bias_, a_.bias.template data<S>() + g * c_.outputs * a_.bias.stride(0), a_.bias.stride(0),
               c_.outputs);
  }

  // One sample's channels of the group, innermost.
  void copy(const S* x) const {
    const std::int64_t step = channel_step(a_.x);
    T* to = map_;
    Spatial::each(s_.in, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      const S* from = x + i * s_.x[0] + j * s_.x[1] + k * s_.x[2];
      for (std::int64_t c = 0; c < c_.channels; ++c) *to++ = static_cast<T>(from[c * step]);
    });
  }
  void round_to(S* y) const {
    const std::int64_t n = numel_of(p_.out) * c_.outputs;
    if (activates_sums())
      blocks_of<T>(pointwise_table())
          .unary[static_cast<std::size_t>(forward_op(a_.activation))](sums_, sums_, n, T(0), T(0));
    const T* from = sums_;
    const std::int64_t step = channel_step(y_);
    Spatial::each(s_.out, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      store_block(y + i * s_.y[0] + j * s_.y[1] + k * s_.y[2], step, from, c_.outputs);
      from += c_.outputs;
    });
  }

  const ConvProblem& p_;
  const ConvArgs& a_;
  const Array& y_;
  Array w_;
  Spatial s_;
  std::int64_t taps_;
  bool copied_;  // x
  ConvWindows<T> c_;
  T* weights_ = nullptr;
  T* bias_ = nullptr;
  T* map_ = nullptr;
  T* sums_ = nullptr;
};

}  // namespace

bool conv_forward_few_sums(const ConvProblem& p, const ConvArgs& args) {
  if (!(p.dtype == DType::F64 ? has_few_sums<double>(p) : has_few_sums<float>(p))) return false;
  switch (p.dtype) {
    case DType::F64:
      FewSums<double>(p, args).run();
      break;
    case DType::BF16:
      FewSums<bf16>(p, args).run();
      break;
    case DType::F16:
      FewSums<f16>(p, args).run();
      break;
    default:
      FewSums<float>(p, args).run();
  }
  return true;
}

}  // namespace tessera::cpu
