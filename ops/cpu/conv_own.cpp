// Convolutions by matrix products: the patches that windows see become rows [kernel position][channel].
#include <vector>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/conv_problem.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPositions = 192;  // windows at a time
constexpr std::int64_t kParts = 8;        // of the windows, for the weight gradient

// One block of windows of one sample and group.
struct WindowBlock {
  std::int64_t sample;
  std::int64_t group;
  std::int64_t first;
  std::int64_t count;
};

template <class T>
class PatchConv {
 public:
  explicit PatchConv(const ConvProblem& p)
      : p_(p),
        windows_(numel_of(p.out)),
        row_(p.group_in() * numel_of(p.kernel)),
        blocks_(ceil_div(windows_, kPositions)) {}

  std::int64_t row() const { return row_; }
  std::int64_t blocks() const { return blocks_; }
  std::int64_t all_blocks() const { return p_.samples * blocks_; }
  WindowBlock block(std::int64_t group, std::int64_t index) const {
    const std::int64_t first = index % blocks_ * kPositions;
    return {index / blocks_, group, first, std::min(kPositions, windows_ - first)};
  }

  // f(row of the patch matrix, element offset of channel 0 in x, or -1 outside) for each window and kernel
  // position.
  template <class F>
  void for_each_tap(const WindowBlock& b, const Array& x, const F& f) const {
    const std::int64_t taps = numel_of(p_.kernel);
    for (std::int64_t i = 0; i < b.count; ++i) {
      const Dims window = unravel(b.first + i, p_.out);
      for (std::int64_t t = 0; t < taps; ++t) {
        const Dims tap = unravel(t, p_.kernel);
        std::int64_t offset = b.sample * x.stride(0) + b.group * p_.group_in() * x.stride(1);
        bool inside = true;
        for (int d = 0; d < p_.spatial; ++d) {
          const std::int64_t at = window[d] * p_.stride[d] - p_.padding_lo[d] + tap[d] * p_.dilation[d];
          inside = inside && at >= 0 && at < p_.in[d];
          offset += at * x.stride(d + 2);
        }
        f(i * row_ + t * p_.group_in(), inside ? offset : -1);
      }
    }
  }

  void gather(const WindowBlock& b, const Array& x, T* rows) const {
    const T* data = x.data<T>();
    const std::int64_t step = x.stride(1);
    const std::int64_t channels = p_.group_in();
    for_each_tap(b, x, [&](std::int64_t at, std::int64_t offset) {
      T* to = rows + at;
      for (std::int64_t c = 0; c < channels; ++c) to[c] = offset < 0 ? T(0) : data[offset + c * step];
    });
  }

  void scatter_add(const WindowBlock& b, const T* rows, const Array& x) const {
    T* data = x.data<T>();
    const std::int64_t step = x.stride(1);
    const std::int64_t channels = p_.group_in();
    for_each_tap(b, x, [&](std::int64_t at, std::int64_t offset) {
      if (offset < 0) return;
      for (std::int64_t c = 0; c < channels; ++c) data[offset + c * step] += rows[at + c];
    });
  }

  // The block's part of an output-sized array: f(window, offset of its channel 0).
  template <class F>
  void for_each_output(const WindowBlock& b, const Array& y, const F& f) const {
    for (std::int64_t i = 0; i < b.count; ++i) {
      const Dims window = unravel(b.first + i, p_.out);
      std::int64_t offset = b.sample * y.stride(0) + b.group * p_.group_out() * y.stride(1);
      for (int d = 0; d < p_.spatial; ++d) offset += window[d] * y.stride(d + 2);
      f(i, offset);
    }
  }
  void gather_outputs(const WindowBlock& b, const Array& y, T* rows) const {
    const T* data = y.data<T>();
    for_each_output(b, y, [&](std::int64_t i, std::int64_t offset) {
      for (std::int64_t o = 0; o < p_.group_out(); ++o)
        rows[i * p_.group_out() + o] = data[offset + o * y.stride(1)];
    });
  }
  void scatter_outputs(const WindowBlock& b, const T* rows, const Array& y) const {
    T* data = y.data<T>();
    const std::int64_t step = y.stride(1);
    for_each_output(b, y, [&](std::int64_t i, std::int64_t offset) {
      for (std::int64_t o = 0; o < p_.group_out(); ++o)
        data[offset + o * step] = rows[i * p_.group_out() + o];
    });
  }

 private:
  static Dims unravel(std::int64_t index, const Dims& sizes) {
    Dims at = sizes;
    for (int d = sizes.size() - 1; d >= 0; --d) {
      at[d] = index % sizes[d];
      index /= sizes[d];
    }
    return at;
  }

  const ConvProblem& p_;
  std::int64_t windows_;
  std::int64_t row_;
  std::int64_t blocks_;
};

// [O, C / groups, kernel...] seen as [O, kernel..., C / groups].
Array taps_before_channels(const Array& w) {
  Dims order{0};
  for (int d = 2; d < w.dim(); ++d) order.push_back(d);
  order.push_back(1);
  return w.permute(order);
}

// y = f(x), contiguous; y may be x.
template <class T>
void activate(Activation f, T* y, const T* x, std::int64_t n) {
  blocks_of<T>(pointwise_table()).unary[static_cast<std::size_t>(forward_op(f))](y, x, n, T(0), T(0));
}

// c += a b.
template <class T>
void product(const GemmBlock<T>& g, T* space) {
  const GemmBlocks<T>& kernels = blocks_of<T>(gemm_table());
  if (g.m < 4 || g.n < 4 || g.k < 4) return kernels.small(g);
  kernels.packed(g, space);
}

// Scratch of one piece of work.
template <class T>
struct Scratch {
  Scratch(const PatchConv<T>& conv, std::int64_t group_out) {
    Workspace& w = Workspace::begin();
    rows = w.take<T>(kPositions * conv.row());
    outputs = w.take<T>(kPositions * group_out);
    space = w.take<T>(blocks_of<T>(gemm_table()).workspace());
  }
  T* rows;     // patches
  T* outputs;  // of y or dy
  T* space;    // of the product
};

template <class T>
void forward(const ConvProblem& p, const ConvArgs& args) {
  const PatchConv<T> conv(p);
  const Array w = taps_before_channels(args.w).contiguous();
  const std::int64_t og = p.group_out();
  const std::int64_t bias_step = args.bias.defined() ? args.bias.stride(0) : 0;
  parallel_for(p.groups * conv.all_blocks(), threads_for(p.flops()), [&](std::int64_t job) {
    const WindowBlock b = conv.block(job / conv.all_blocks(), job % conv.all_blocks());
    const Scratch<T> s(conv, og);
    conv.gather(b, args.x, s.rows);
    std::fill(s.outputs, s.outputs + b.count * og, T(0));
    const T* wg = w.data<T>() + b.group * og * conv.row();
    product<T>({s.outputs, s.rows, wg, b.count, og, conv.row(), og, 1, conv.row(), 1, 1, conv.row()},
               s.space);
    if (args.bias.defined()) {
      const T* bias = args.bias.data<T>() + b.group * og * bias_step;
      for (std::int64_t i = 0; i < b.count; ++i)
        for (std::int64_t o = 0; o < og; ++o) s.outputs[i * og + o] += bias[o * bias_step];
    }
    if (args.z.defined()) conv.scatter_outputs(b, s.outputs, args.z);
    if (args.activation != Activation::None) activate(args.activation, s.outputs, s.outputs, b.count * og);
    conv.scatter_outputs(b, s.outputs, args.y);
  });
}

// Windows overlap, so one thread does all windows of a sample and group.
template <class T>
void backward_data(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  const PatchConv<T> conv(p);
  const Array w = taps_before_channels(args.w).contiguous();
  const std::int64_t og = p.group_out();
  args.dx.zero_();
  parallel_for(p.groups * p.samples, threads_for(p.flops()), [&](std::int64_t job) {
    const Scratch<T> s(conv, og);
    for (std::int64_t i = 0; i < conv.blocks(); ++i) {
      const WindowBlock b = conv.block(job / p.samples, job % p.samples * conv.blocks() + i);
      conv.gather_outputs(b, args.dy, s.outputs);
      std::fill(s.rows, s.rows + b.count * conv.row(), T(0));
      const T* wg = w.data<T>() + b.group * og * conv.row();
      product<T>({s.rows, s.outputs, wg, b.count, conv.row(), og, conv.row(), 1, og, 1, conv.row(), 1},
                 s.space);
      conv.scatter_add(b, s.rows, args.dx);
    }
  });
}

template <class T>
void backward_weight(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  const PatchConv<T> conv(p);
  const std::int64_t og = p.group_out();
  const std::int64_t parts = std::min(kParts, conv.all_blocks());
  const std::int64_t size = p.out_channels * conv.row();
  std::vector<T> sums(static_cast<std::size_t>(parts * size), T(0));
  parallel_for(p.groups * parts, threads_for(p.flops()), [&](std::int64_t job) {
    const std::int64_t group = job / parts;
    const std::int64_t part = job % parts;
    const Scratch<T> s(conv, og);
    T* dw = sums.data() + part * size + group * og * conv.row();
    for (std::int64_t i = part; i < conv.all_blocks(); i += parts) {
      const WindowBlock b = conv.block(group, i);
      conv.gather(b, args.x, s.rows);
      conv.gather_outputs(b, args.dy, s.outputs);
      product<T>({dw, s.outputs, s.rows, og, conv.row(), b.count, conv.row(), 1, 1, og, conv.row(), 1},
                 s.space);
    }
  });
  for (std::int64_t part = 1; part < parts; ++part)
    for (std::int64_t i = 0; i < size; ++i)
      sums[static_cast<std::size_t>(i)] += sums[static_cast<std::size_t>(part * size + i)];
  const Array dw = taps_before_channels(args.dw);
  dw.copy_(Array::wrap(sums.data(), dw.sizes(), contiguous_strides(dw.sizes()), p.dtype));
}

template <class F>
void by_type(DType t, const F& f) {
  if (t == DType::F64) {
    f(TypeTag<double>{});
  } else {
    f(TypeTag<float>{});
  }
}

}  // namespace

void conv_forward_own(const ConvProblem& p, const ConvArgs& args) {
  by_type(p.dtype, [&](auto tag) { forward<typename decltype(tag)::type>(p, args); });
}
void conv_backward_data_own(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  by_type(p.dtype, [&](auto tag) { backward_data<typename decltype(tag)::type>(p, args); });
}
void conv_backward_weight_own(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  by_type(p.dtype, [&](auto tag) { backward_weight<typename decltype(tag)::type>(p, args); });
}

}  // namespace tessera::cpu
