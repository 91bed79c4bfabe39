// Convolutions of a few products, where making lines ready takes longer than they do. A data gradient is one
// small matrix product [positions of dy, taps x channels], whose rows are then added where their taps point.
// Where there is one filter a channel every output is summed up, or spread, by itself.
#include <algorithm>
#include <array>

#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_few.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/conv_table.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

namespace {

constexpr double kFewSums = 4e3;        // the same, of outputs that are summed one by one
constexpr std::int64_t kFewRows = 640;  // of channels, that are added to dx
constexpr std::int64_t kFewElements = 1024;

bool is_few(const ConvProblem& p) {
  if (is_half(p.dtype) || p.flops() > kFewFlops) return false;
  const std::int64_t rows = p.samples * p.groups * numel_of(p.out) * numel_of(p.kernel);
  return rows <= kFewRows && rows * p.group_in() <= kFewElements;
}

// dx is the bias, or zeros.
template <class T>
void begin_with_bias(const ConvProblem& p, const ConvBackwardDataArgs& a) {
  if (!is_channels_last(a.dx)) return fill_with_bias(a.dx, a.bias);
  const std::int64_t channels = p.in_channels;
  const std::int64_t all = numel_of(p.in) * channels;
  for (std::int64_t n = 0; n < p.samples; ++n) {
    T* to = a.dx.template data<T>() + n * a.dx.stride(0);
    for (std::int64_t c = 0; c < channels; ++c)
      to[c] = a.bias.defined() ? a.bias.template data<T>()[c * a.bias.stride(0)] : T(0);
    for (std::int64_t done = channels; done < all; done *= 2)
      std::copy_n(to, std::min(done, all - done), to + done);
  }
}

template <class T>
class FewProducts {
 public:
  FewProducts(const ConvProblem& p, const ConvBackwardDataArgs& args)
      : p_(p),
        a_(args),
        s_(p, args.dx, args.w, args.dy),
        taps_(numel_of(p.kernel)),
        positions_(numel_of(p.out)) {
    const std::int64_t width = blocks_of<T>(conv_table()).width;
    columns_ = ceil_div(taps_ * p.group_in(), width) * width;
    Workspace& space = Workspace::begin();
    weights_ = space.take<T>(p.group_out() * columns_);
    dy_ = space.take<T>(positions_ * p.group_out());
    products_ = space.take<T>(positions_ * columns_);
    start_ = space.take<T>(columns_);
    std::fill(start_, start_ + columns_, T(0));
  }

  void run() {
    begin_with_bias<T>(p_, a_);
    for (std::int64_t g = 0; g < p_.groups; ++g) {
      pack(g);
      for (std::int64_t n = 0; n < p_.samples; ++n) {
        gather(n, g);
        const ConvTerms<T> terms{dy_, 0, p_.group_out()};
        blocks_of<T>(conv_table())
            .map_line({products_, &terms, 1, start_, weights_, 1, columns_, columns_, positions_, columns_,
                       p_.group_out()});
        scatter(a_.dx.template data<T>() + n * a_.dx.stride(0) + g * p_.group_in() * a_.dx.stride(1));
      }
    }
  }

 private:
  // The group's weights as [output channel][tap][input channel], filled up to whole vectors.
  void pack(std::int64_t g) const {
    const std::int64_t channels = p_.group_in();
    const T* from = a_.w.template data<T>() + g * p_.group_out() * a_.w.stride(0);
    for (std::int64_t o = 0; o < p_.group_out(); ++o) {
      T* to = weights_ + o * columns_;
      Spatial::each(s_.kernel, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
        const T* tap = from + o * a_.w.stride(0) + i * s_.w[0] + j * s_.w[1] + k * s_.w[2];
        for (std::int64_t c = 0; c < channels; ++c) *to++ = tap[c * a_.w.stride(1)];
      });
      std::fill(to, weights_ + (o + 1) * columns_, T(0));
    }
  }

  // One sample's dy of the group as [position][channel].
  void gather(std::int64_t n, std::int64_t g) const {
    const std::int64_t step = a_.dy.stride(1);
    const T* from = a_.dy.template data<T>() + n * a_.dy.stride(0) + g * p_.group_out() * step;
    T* to = dy_;
    Spatial::each(s_.out, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      const T* position = from + i * s_.y[0] + j * s_.y[1] + k * s_.y[2];
      for (std::int64_t o = 0; o < p_.group_out(); ++o) *to++ = position[o * step];
    });
  }

  void scatter(T* dx) const {
    const std::int64_t channels = p_.group_in();
    const std::int64_t step = a_.dx.stride(1);
    const T* row = products_;
    Spatial::each(s_.out, [&](std::int64_t i, std::int64_t j, std::int64_t k) {
      const std::array<std::int64_t, 3> first{i * s_.stride[0] - s_.padding[0],
                                              j * s_.stride[1] - s_.padding[1],
                                              k * s_.stride[2] - s_.padding[2]};
      const T* from = row;
      row += columns_;
      for (std::int64_t a = 0, u = first[0]; a < s_.kernel[0]; ++a, u += s_.dilation[0])
        for (std::int64_t b = 0, v = first[1]; b < s_.kernel[1]; ++b, v += s_.dilation[1]) {
          const bool line = u >= 0 && u < s_.in[0] && v >= 0 && v < s_.in[1];
          T* to = dx + u * s_.x[0] + v * s_.x[1];
          for (std::int64_t c = 0, w = first[2]; c < s_.kernel[2]; ++c, w += s_.dilation[2]) {
            if (line && w >= 0 && w < s_.in[2])
              for (std::int64_t ch = 0; ch < channels; ++ch) to[w * s_.x[2] + ch * step] += from[ch];
            from += channels;
          }
        }
    });
  }

  const ConvProblem& p_;
  const ConvBackwardDataArgs& a_;
  Spatial s_;
  std::int64_t taps_;
  std::int64_t positions_;
  std::int64_t columns_ = 0;
  T* weights_ = nullptr;
  T* dy_ = nullptr;
  T* products_ = nullptr;
  T* start_ = nullptr;  // zeros
};

// For every output of a sample f(its place, that of the input at its first tap, the taps that are inside:
// from, to).
struct Places {
  std::array<std::int64_t, 3> out{}, in{}, lo{}, hi{};
};
template <class F>
void each_window(const Spatial& s, const F& f) {
  Places at;
  const auto enter = [&](std::size_t d, std::int64_t out) {
    const std::int64_t first = out * s.stride[d] - s.padding[d];
    const auto taps_over = [&](std::int64_t n) {
      return s.dilation[d] == 1 ? n : ceil_div(n, s.dilation[d]);
    };
    at.out[d] = out;
    at.in[d] = first;
    at.lo[d] = first < 0 ? taps_over(-first) : 0;
    at.hi[d] = first >= s.in[d] ? 0 : std::min(s.kernel[d], taps_over(s.in[d] - first));
  };
  for (std::int64_t i = 0; i < s.out[0]; ++i) {
    enter(0, i);
    for (std::int64_t j = 0; j < s.out[1]; ++j) {
      enter(1, j);
      for (std::int64_t k = 0; k < s.out[2]; ++k) {
        enter(2, k);
        f(at);
      }
    }
  }
}
// f(element of the weights, element of the map) for every tap that is inside.
template <class F>
void each_tap(const Spatial& s, const Places& at, const F& f) {
  for (std::int64_t u = at.lo[0]; u < at.hi[0]; ++u)
    for (std::int64_t v = at.lo[1]; v < at.hi[1]; ++v)
      for (std::int64_t w = at.lo[2]; w < at.hi[2]; ++w)
        f(u * s.w[0] + v * s.w[1] + w * s.w[2], (at.in[0] + u * s.dilation[0]) * s.x[0] +
                                                    (at.in[1] + v * s.dilation[1]) * s.x[1] +
                                                    (at.in[2] + w * s.dilation[2]) * s.x[2]);
}
std::int64_t place_of(const Spatial& s, const Places& at) {
  return at.out[0] * s.y[0] + at.out[1] * s.y[1] + at.out[2] * s.y[2];
}

// One filter a channel.
template <class T>
void filter_channels(const ConvProblem& p, const ConvArgs& a) {
  const Array& out = a.given();
  const Spatial s(p, a.x, a.w, out);
  const T* const bias = a.bias.defined() ? a.bias.template data<T>() : nullptr;
  for (std::int64_t n = 0; n < p.samples; ++n)
    each_window(s, [&](const Places& at) {
      for (std::int64_t c = 0; c < p.groups; ++c) {
        const T* const map = a.x.template data<T>() + n * a.x.stride(0) + c * a.x.stride(1);
        const T* const taps = a.w.template data<T>() + c * a.w.stride(0);
        T sum = bias != nullptr ? bias[c * a.bias.stride(0)] : T(0);
        each_tap(s, at, [&](std::int64_t tap, std::int64_t x) { sum += taps[tap] * map[x]; });
        out.template data<T>()[n * out.stride(0) + c * out.stride(1) + place_of(s, at)] = sum;
      }
    });
}
template <class T>
void spread_channels(const ConvProblem& p, const ConvBackwardDataArgs& a) {
  const Spatial s(p, a.dx, a.w, a.dy);
  begin_with_bias<T>(p, a);
  for (std::int64_t n = 0; n < p.samples; ++n)
    each_window(s, [&](const Places& at) {
      for (std::int64_t c = 0; c < p.groups; ++c) {
        T* const map = a.dx.template data<T>() + n * a.dx.stride(0) + c * a.dx.stride(1);
        const T* const taps = a.w.template data<T>() + c * a.w.stride(0);
        const T dy = a.dy.template data<T>()[n * a.dy.stride(0) + c * a.dy.stride(1) + place_of(s, at)];
        each_tap(s, at, [&](std::int64_t tap, std::int64_t x) { map[x] += taps[tap] * dy; });
      }
    });
}
bool filters_few(const ConvProblem& p) {
  const bool one_filter = p.groups > 1 && p.group_in() == 1 && p.group_out() == 1;
  return one_filter && !is_half(p.dtype) && p.flops() <= kFewSums;
}

}  // namespace

bool conv_forward_few(const ConvProblem& p, const ConvArgs& args) {
  if (!filters_few(p)) return conv_forward_few_sums(p, args);
  (p.dtype == DType::F64 ? filter_channels<double> : filter_channels<float>)(p, args);
  activate(args);
  return true;
}

bool conv_backward_data_few(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  if (filters_few(p)) {
    (p.dtype == DType::F64 ? spread_channels<double> : spread_channels<float>)(p, args);
    return true;
  }
  if (!is_few(p)) return false;
  if (p.dtype == DType::F64) {
    FewProducts<double>(p, args).run();
  } else {
    FewProducts<float>(p, args).run();
  }
  return true;
}

}  // namespace tessera::cpu
