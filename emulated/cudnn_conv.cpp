// Convolutions and their gradients.
#include "emulated/cudnn_operation.h"

namespace tessera::emulated {
namespace {

struct Names {
  cudnnBackendAttributeName_t x, w, y, windows;
};
// False: no convolution.
bool names_of(cudnnBackendDescriptorType_t type, Names& names) {
  switch (type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
               CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC};
      return true;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC};
      return true;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
               CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC};
      return true;
    default:
      return false;
  }
}

struct Convolution {
  Tensor x, w, y;
  List padding_lo, padding_hi, stride, dilation;
};

std::string fault_of(const Convolution& c) {
  const std::size_t dims = c.x.size.size();
  for (const Tensor* t : {&c.x, &c.w, &c.y}) {
    if (std::string fault = emulated::fault_of(*t); !fault.empty()) return fault;
    if (t->size.size() != dims) return "tensors of different dims";
  }
  if (dims < 4 || dims > 5) return "convolutions over 2 or 3 dims only";
  const std::size_t spatial = dims - 2;
  for (const List* l : {&c.padding_lo, &c.padding_hi, &c.stride, &c.dilation})
    if (l->size() != spatial) return "windows of other dims than the tensors";
  if (c.x.size[0] != c.y.size[0] || c.w.size[0] != c.y.size[1] || c.x.size[1] % c.w.size[1] != 0 ||
      c.w.size[0] % (c.x.size[1] / c.w.size[1]) != 0)
    return "samples or channels that do not fit";
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t reach = c.dilation[d] * (c.w.size[d + 2] - 1) + 1;
    const std::int64_t room = c.x.size[d + 2] + c.padding_lo[d] + c.padding_hi[d] - reach;
    if (room < 0 || room / c.stride[d] + 1 != c.y.size[d + 2]) return "an output of another size";
  }
  return {};
}

// The loops below run along channels: elements in the order N, spatial, C, and back.
template <class F>
void for_each_channels_last(const Tensor& t, const F& f) {
  const std::int64_t channels = t.size[1];
  const std::int64_t positions = t.numel() / (t.size[0] * channels);
  std::size_t row_major = 0;
  for (std::int64_t n = 0; n < t.size[0]; ++n)
    for (std::int64_t c = 0; c < channels; ++c)
      for (std::int64_t p = 0; p < positions; ++p)
        f(row_major++, static_cast<std::size_t>((n * positions + p) * channels + c));
}
Values channels_last(const Tensor& t, const Values& values) {
  Values out(values.size());
  for_each_channels_last(t, [&](std::size_t i, std::size_t j) { out[j] = values[i]; });
  return out;
}
Values row_major(const Tensor& t, const Values& values) {
  Values out(values.size());
  for_each_channels_last(t, [&](std::size_t i, std::size_t j) { out[i] = values[j]; });
  return out;
}

// One convolution on dense operands, channels last.
class Windows {
 public:
  explicit Windows(const Convolution& op)
      : op_(op),
        spatial_(op.x.size.size() - 2),
        in_(op.w.size[1]),
        groups_(op.x.size[1] / in_),
        out_(op.w.size[0] / groups_) {}

  // f(offset in x, in y, in w) of the first channel for every window, tap and group that meet in x. x and y
  // go on by 1 from there; w [O, taps, C / groups].
  template <class F>
  void for_each(const F& f) const {
    const std::int64_t taps = product(op_.w.size);
    const std::int64_t outputs = product(op_.y.size);
    const std::int64_t inputs = product(op_.x.size);
    for (std::int64_t n = 0; n < op_.x.size[0]; ++n)
      for (std::int64_t p = 0; p < outputs; ++p)
        for (std::int64_t r = 0; r < taps; ++r) {
          const std::int64_t in = input_of(p, r);
          if (in < 0) continue;
          for (std::int64_t g = 0; g < groups_; ++g)
            f((n * inputs + in) * op_.x.size[1] + g * in_, (n * outputs + p) * op_.y.size[1] + g * out_,
              (g * out_ * taps + r) * in_);
        }
  }
  std::int64_t in() const { return in_; }
  std::int64_t out() const { return out_; }
  std::int64_t filter() const { return product(op_.w.size) * in_; }

 private:
  std::int64_t product(const List& size) const {
    std::int64_t n = 1;
    for (std::size_t d = 2; d < size.size(); ++d) n *= size[d];
    return n;
  }
  // -1: in the padding.
  std::int64_t input_of(std::int64_t p, std::int64_t r) const {
    std::int64_t at = 0;
    std::int64_t scale = 1;
    for (std::size_t d = spatial_; d-- > 0;) {
      const std::int64_t i =
          p % op_.y.size[d + 2] * op_.stride[d] - op_.padding_lo[d] + r % op_.w.size[d + 2] * op_.dilation[d];
      p /= op_.y.size[d + 2];
      r /= op_.w.size[d + 2];
      if (i < 0 || i >= op_.x.size[d + 2]) return -1;
      at += i * scale;
      scale *= op_.x.size[d + 2];
    }
    return at;
  }
  const Convolution& op_;
  std::size_t spatial_;
  std::int64_t in_, groups_, out_;
};

Values convolve(const Convolution& op, const Values& x, const Values& w) {
  Values y(static_cast<std::size_t>(op.y.numel()));
  const Windows windows(op);
  windows.for_each([&](std::int64_t ix, std::int64_t iy, std::int64_t iw) {
    for (std::int64_t o = 0; o < windows.out(); ++o) {
      double sum = 0;
      const double* a = x.data() + ix;
      const double* b = w.data() + iw + o * windows.filter();
      for (std::int64_t c = 0; c < windows.in(); ++c) sum += a[c] * b[c];
      y[static_cast<std::size_t>(iy + o)] += sum;
    }
  });
  return y;
}
Values data_gradient(const Convolution& op, const Values& y, const Values& w) {
  Values x(static_cast<std::size_t>(op.x.numel()));
  const Windows windows(op);
  windows.for_each([&](std::int64_t ix, std::int64_t iy, std::int64_t iw) {
    for (std::int64_t o = 0; o < windows.out(); ++o) {
      const double v = y[static_cast<std::size_t>(iy + o)];
      const double* b = w.data() + iw + o * windows.filter();
      for (std::int64_t c = 0; c < windows.in(); ++c) x[static_cast<std::size_t>(ix + c)] += v * b[c];
    }
  });
  return x;
}
Values weight_gradient(const Convolution& op, const Values& y, const Values& x) {
  Values w(static_cast<std::size_t>(op.w.numel()));
  const Windows windows(op);
  windows.for_each([&](std::int64_t ix, std::int64_t iy, std::int64_t iw) {
    for (std::int64_t o = 0; o < windows.out(); ++o) {
      const double v = y[static_cast<std::size_t>(iy + o)];
      double* b = w.data() + iw + o * windows.filter();
      const double* a = x.data() + ix;
      for (std::int64_t c = 0; c < windows.in(); ++c) b[c] += v * a[c];
    }
  });
  return w;
}
}  // namespace

std::string read_convolution(const Descriptor& d, Operation& op) {
  Names names{};
  if (!names_of(d.type, names)) return "an operation that the stand-in does not know";
  const auto x = d.child(names.x);
  const auto w = d.child(names.w);
  const auto y = d.child(names.y);
  const auto windows = d.child(names.windows);
  if (!x || !w || !y || !windows) return "an operation without all of its tensors";
  if (windows->value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) != CUDNN_CROSS_CORRELATION)
    return "cross-correlations only";
  Convolution c{tensor_of(*x), tensor_of(*w), tensor_of(*y), {}, {}, {}, {}};
  c.padding_lo = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  c.padding_hi = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  c.stride = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  c.dilation = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  if (std::string fault = fault_of(c); !fault.empty()) return fault;
  auto* work = &convolve;
  op.inputs = {c.x, c.w};
  op.result = c.y;
  if (d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR) {
    work = &data_gradient;
    op.inputs = {c.y, c.w};
    op.result = c.x;
  } else if (d.type == CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR) {
    work = &weight_gradient;
    op.inputs = {c.y, c.x};
    op.result = c.w;
  }
  if (std::string fault = fault_of_compute(*windows, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, op); !fault.empty())
    return fault;
  op.rounds_factors = true;
  op.run = [c, work, inputs = op.inputs, result = op.result](const std::vector<Values>& in) {
    return row_major(result, work(c, channels_last(inputs[0], in[0]), channels_last(inputs[1], in[1])));
  };
  return {};
}

}  // namespace tessera::emulated
