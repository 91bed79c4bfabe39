#include "ops/cuda/conv_kernels.h"

#include "runtime/cuda/block_reduce.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {
namespace {

// What a kernel knows of the convolution; operands are typed.
template <class T>
struct Conv {
  Ptr<T> x, w, y, bias;
  ConvElements c;
};
template <class T>
Conv<T> typed(const ConvElements& c) {
  return {static_cast<T*>(c.x.data), static_cast<T*>(c.w.data), static_cast<T*>(c.y.data),
          static_cast<T*>(c.bias.data), c};
}

TS_DEVICE std::int64_t taken(std::int64_t& i, std::int64_t size) {
  const std::int64_t at = i % size;
  i /= size;
  return at;
}

template <class T>
TS_DEVICE double product(const T& a, const T& b) {
  return static_cast<double>(load(a)) * static_cast<double>(load(b));
}

TS_DEVICE std::int64_t spatial(const std::int64_t (&stride)[5], const std::int64_t (&at)[3]) {
  return at[0] * stride[2] + at[1] * stride[3] + at[2] * stride[4];
}

// One thread an output; neighbours are channels.
template <class T>
struct ForwardElements : Independent {
  Conv<T> conv;
  std::int64_t n;
  TS_DEVICE void operator()(const Block& block) const {
    std::int64_t i = global_thread(block);
    if (i >= n) return;
    const ConvElements& c = conv.c;
    const std::int64_t o = taken(i, c.groups * c.group_out);
    std::int64_t to = o * c.y_stride[1];
    std::int64_t start[3];  // of the window in x
    for (int d = 2; d >= 0; --d) {
      const std::int64_t at = taken(i, c.out[d]);
      to += at * c.y_stride[2 + d];
      start[d] = at * c.step[d] - c.padding[d];
    }
    to += i * c.y_stride[0];
    const std::int64_t x = i * c.x_stride[0] + o / c.group_out * c.group_in * c.x_stride[1];
    const std::int64_t w = o * c.w_stride[0];
    double sum = conv.bias ? static_cast<double>(load(conv.bias[o * c.bias_stride])) : 0.0;
    const std::int64_t taps = c.kernel[0] * c.kernel[1] * c.kernel[2];
    for (std::int64_t t = 0; t < taps; ++t) {
      std::int64_t rest = t;
      std::int64_t from = x;
      std::int64_t by = w;
      for (int d = 2; d >= 0 && from >= 0; --d) {
        const std::int64_t r = taken(rest, c.kernel[d]);
        by += r * c.w_stride[2 + d];
        const std::int64_t in = start[d] + r * c.dilation[d];
        from = in >= 0 && in < c.in[d] ? from + in * c.x_stride[2 + d] : -1;
      }
      if (from < 0) continue;  // in the padding
      for (std::int64_t k = 0; k < c.group_in; ++k, from += c.x_stride[1], by += c.w_stride[1])
        sum += product(conv.x[from], conv.w[by]);
    }
    conv.y[to] = convert<T>(sum);
  }
};

// One thread an element of x: the windows that cover it, tap by tap.
template <class T>
struct DataGradientElements : Independent {
  Conv<T> conv;
  std::int64_t n;
  TS_DEVICE void operator()(const Block& block) const {
    std::int64_t i = global_thread(block);
    if (i >= n) return;
    const ConvElements& c = conv.c;
    const std::int64_t k = taken(i, c.groups * c.group_in);
    std::int64_t in[3];
    for (int d = 2; d >= 0; --d) in[d] = taken(i, c.in[d]);
    const std::int64_t first = k / c.group_in * c.group_out;  // channel of y
    const std::int64_t w = first * c.w_stride[0] + k % c.group_in * c.w_stride[1];
    const std::int64_t y = i * c.y_stride[0] + first * c.y_stride[1];
    double sum = 0;
    std::int64_t r[3];
    std::int64_t at[3];
    for (r[0] = 0; r[0] < c.kernel[0]; ++r[0]) {
      if (!window(0, in, r, at)) continue;
      for (r[1] = 0; r[1] < c.kernel[1]; ++r[1]) {
        if (!window(1, in, r, at)) continue;
        for (r[2] = 0; r[2] < c.kernel[2]; ++r[2]) {
          if (!window(2, in, r, at)) continue;
          const std::int64_t from = y + spatial(c.y_stride, at);
          const std::int64_t by = w + spatial(c.w_stride, r);
          for (std::int64_t o = 0; o < c.group_out; ++o)
            sum += product(conv.y[from + o * c.y_stride[1]], conv.w[by + o * c.w_stride[0]]);
        }
      }
    }
    if (conv.bias) sum += static_cast<double>(load(conv.bias[k * c.bias_stride]));
    conv.x[i * c.x_stride[0] + k * c.x_stride[1] + spatial(c.x_stride, in)] = convert<T>(sum);
  }
  // The window along dim d that lays tap r on the element; false: there is none.
  TS_DEVICE bool window(int d, const std::int64_t (&in)[3], const std::int64_t (&r)[3],
                        std::int64_t (&at)[3]) const {
    const std::int64_t start = in[d] + conv.c.padding[d] - r[d] * conv.c.dilation[d];
    at[d] = start / conv.c.step[d];
    return start >= 0 && start % conv.c.step[d] == 0 && at[d] < conv.c.out[d];
  }
};

// One block a weight; its threads share the windows.
template <class T>
struct WeightGradientElements : Cooperative {
  Conv<T> conv;
  std::int64_t windows;
  TS_DEVICE void operator()(const Block& block) const {
    const ConvElements& c = conv.c;
    std::int64_t i = block.index();
    const std::int64_t k = taken(i, c.group_in);
    std::int64_t r[3];
    for (int d = 2; d >= 0; --d) r[d] = taken(i, c.kernel[d]);
    const std::int64_t o = i;
    const std::int64_t channel = o / c.group_out * c.group_in + k;
    double sum = 0;
    for (std::int64_t v = block.thread(); v < windows; v += block.threads()) {
      std::int64_t rest = v;
      std::int64_t at[3];
      std::int64_t in[3];
      bool inside = true;
      for (int d = 2; d >= 0; --d) {
        at[d] = taken(rest, c.out[d]);
        in[d] = at[d] * c.step[d] - c.padding[d] + r[d] * c.dilation[d];
        inside = inside && in[d] >= 0 && in[d] < c.in[d];
      }
      if (!inside) continue;
      sum += product(conv.y[rest * c.y_stride[0] + o * c.y_stride[1] + spatial(c.y_stride, at)],
                     conv.x[rest * c.x_stride[0] + channel * c.x_stride[1] + spatial(c.x_stride, in)]);
    }
    sum = block_reduce(block, sum, Plus<double>());
    if (block.thread() == 0)
      conv.w[o * c.w_stride[0] + k * c.w_stride[1] + spatial(c.w_stride, r)] = convert<T>(sum);
  }
};

std::int64_t volume(const std::int64_t (&size)[3]) { return size[0] * size[1] * size[2]; }

}  // namespace

void conv_forward_elements(const ConvElements& args, StreamHandle stream) {
  const std::int64_t n = args.samples * args.groups * args.group_out * volume(args.out);
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(ForwardElements<T>{{}, typed<T>(args), n}, one_each(n), stream);
  });
}

void conv_data_gradient_elements(const ConvElements& args, StreamHandle stream) {
  const std::int64_t n = args.samples * args.groups * args.group_in * volume(args.in);
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(DataGradientElements<T>{{}, typed<T>(args), n}, one_each(n), stream);
  });
}

void conv_weight_gradient_elements(const ConvElements& args, StreamHandle stream) {
  const std::int64_t windows = args.samples * volume(args.out);
  const std::int64_t weights = args.groups * args.group_out * args.group_in * volume(args.kernel);
  dispatch_floating(args.x.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    launch(WeightGradientElements<T>{{}, typed<T>(args), windows},
           LaunchShape{weights, threads_for_row(windows), kReduceBytes}, stream);
  });
}

}  // namespace tessera::cuda
