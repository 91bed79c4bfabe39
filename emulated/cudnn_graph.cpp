#include "emulated/cudnn_graph.h"

#include <algorithm>

#include "emulated/memory.h"
#include "runtime/dtype.h"

namespace tessera::emulated {
namespace {

using List = std::vector<std::int64_t>;

struct Tensor {
  std::int64_t uid = 0;
  cudnnDataType_t type = CUDNN_DATA_FLOAT;
  List size;
  List stride;
  std::int64_t alignment = 1;
  bool is_virtual = false;
  std::int64_t numel() const {
    std::int64_t n = 1;
    for (auto s : size) n *= s;
    return n;
  }
};
Tensor tensor_of(const Descriptor& d) {
  Tensor t;
  t.uid = d.value<std::int64_t>(CUDNN_ATTR_TENSOR_UNIQUE_ID, 0);
  t.type = d.value(CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_DATA_FLOAT);
  t.size = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_DIMENSIONS);
  t.stride = d.values<std::int64_t>(CUDNN_ATTR_TENSOR_STRIDES);
  t.alignment = d.value<std::int64_t>(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 1);
  t.is_virtual = d.value<char>(CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0) != 0;
  return t;
}

struct Operation {
  cudnnBackendDescriptorType_t type{};
  Tensor x, w, y;  // of a convolution; y = x + w of an addition
  List padding_lo, padding_hi, stride, dilation;
  const Tensor& result() const {
    switch (type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        return x;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        return w;
      default:
        return y;
    }
  }
  std::vector<const Tensor*> tensors() const { return {&x, &w, &y}; }
};

struct Names {
  cudnnBackendAttributeName_t x, w, y, windows;
};
// False: an operation that is not known here.
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
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
      names = {CUDNN_ATTR_OPERATION_POINTWISE_XDESC, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
               CUDNN_ATTR_OPERATION_POINTWISE_YDESC, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR};
      return true;
    default:
      return false;
  }
}

std::string read(const Descriptor& d, Operation& op) {
  Names names{};
  if (!names_of(d.type, names)) return "an operation that the stand-in does not know";
  op.type = d.type;
  const auto x = d.child(names.x);
  const auto w = d.child(names.w);
  const auto y = d.child(names.y);
  const auto windows = d.child(names.windows);
  if (!x || !w || !y || !windows) return "an operation without all of its tensors";
  op.x = tensor_of(*x);
  op.w = tensor_of(*w);
  op.y = tensor_of(*y);
  if (op.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    const auto mode = windows->value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_MUL);
    return mode == CUDNN_POINTWISE_ADD ? "" : "of element-wise operations only additions";
  }
  if (windows->value(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_CONVOLUTION) != CUDNN_CROSS_CORRELATION)
    return "cross-correlations only";
  op.padding_lo = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  op.padding_hi = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  op.stride = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  op.dilation = windows->values<std::int64_t>(CUDNN_ATTR_CONVOLUTION_DILATIONS);
  return {};
}

std::string fault_of(const Operation& op) {
  const std::size_t dims = op.x.size.size();
  for (const Tensor* t : op.tensors()) {
    if (t->size.size() != dims || t->stride.size() != dims) return "tensors of different dims";
    for (auto s : t->size)
      if (s < 1) return "a size below 1";
    if (t->type != CUDNN_DATA_FLOAT && t->type != CUDNN_DATA_BFLOAT16 && t->type != CUDNN_DATA_DOUBLE)
      return "a data type that the stand-in does not know";
  }
  if (op.type == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR) {
    for (std::size_t d = 0; d < dims; ++d)
      if (op.x.size[d] != op.y.size[d] || (op.w.size[d] != op.y.size[d] && op.w.size[d] != 1))
        return "sizes that cannot be added";
    return {};
  }
  if (dims < 4 || dims > 5) return "convolutions over 2 or 3 dims only";
  const std::size_t spatial = dims - 2;
  for (const List* l : {&op.padding_lo, &op.padding_hi, &op.stride, &op.dilation})
    if (l->size() != spatial) return "windows of other dims than the tensors";
  if (op.x.size[0] != op.y.size[0] || op.w.size[0] != op.y.size[1] || op.x.size[1] % op.w.size[1] != 0 ||
      op.w.size[0] % (op.x.size[1] / op.w.size[1]) != 0)
    return "samples or channels that do not fit";
  for (std::size_t d = 0; d < spatial; ++d) {
    const std::int64_t reach = op.dilation[d] * (op.w.size[d + 2] - 1) + 1;
    const std::int64_t room = op.x.size[d + 2] + op.padding_lo[d] + op.padding_hi[d] - reach;
    if (room < 0 || room / op.stride[d] + 1 != op.y.size[d + 2]) return "an output of another size";
  }
  return {};
}

std::vector<Operation> operations_of(const Descriptor& graph) {
  std::vector<Operation> all;
  const Attribute* ops = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops == nullptr) return all;
  for (const auto& d : ops->children) {
    all.emplace_back();
    if (!read(*d, all.back()).empty()) all.pop_back();
  }
  return all;
}

// Offsets of a tensor's elements in row-major order of its sizes.
template <class F>
void for_each_offset(const List& size, const List& stride, const F& f) {
  List at(size.size(), 0);
  std::int64_t n = 1;
  for (auto s : size) n *= s;
  std::int64_t offset = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    f(i, offset);
    for (std::size_t d = size.size(); d-- > 0;) {
      offset += stride[d];
      if (++at[d] < size[d]) break;
      offset -= stride[d] * size[d];
      at[d] = 0;
    }
  }
}

// Channels last: the loops below run along them.
void channels_last(List& list) {
  list.push_back(list[1]);
  list.erase(list.begin() + 1);
}

using Values = std::vector<double>;

// Elements of the device as doubles, channels last.
Values load(const Tensor& t, void* data) {
  Values out(static_cast<std::size_t>(t.numel()));
  List size = t.size;
  List stride = t.stride;
  channels_last(size);
  channels_last(stride);
  const auto from = [&](const auto* p) {
    for_each_offset(size, stride, [&](std::int64_t i, std::int64_t offset) {
      out[static_cast<std::size_t>(i)] = static_cast<double>(p[offset]);
    });
  };
  data = reach(data);
  if (t.type == CUDNN_DATA_DOUBLE) {
    from(static_cast<const double*>(data));
  } else if (t.type == CUDNN_DATA_BFLOAT16) {
    from(static_cast<const bf16*>(data));
  } else if (t.type == CUDNN_DATA_HALF) {
    from(static_cast<const f16*>(data));
  } else {
    from(static_cast<const float*>(data));
  }
  return out;
}

void store(const Tensor& t, void* data, const Values& values) {
  List size = t.size;
  List stride = t.stride;
  channels_last(size);
  channels_last(stride);
  const auto to = [&](auto* p) {
    using T = std::remove_pointer_t<decltype(p)>;
    for_each_offset(size, stride, [&](std::int64_t i, std::int64_t offset) {
      const double v = values[static_cast<std::size_t>(i)];
      if constexpr (kHalf<T>) {
        p[offset] = T(static_cast<float>(v));
      } else {
        p[offset] = static_cast<T>(v);
      }
    });
  };
  data = reach(data);
  if (t.type == CUDNN_DATA_DOUBLE) {
    to(static_cast<double*>(data));
  } else if (t.type == CUDNN_DATA_BFLOAT16) {
    to(static_cast<bf16*>(data));
  } else if (t.type == CUDNN_DATA_HALF) {
    to(static_cast<f16*>(data));
  } else {
    to(static_cast<float*>(data));
  }
}

// One convolution on dense operands, channels last.
class Windows {
 public:
  explicit Windows(const Operation& op)
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
  const Operation& op_;
  std::size_t spatial_;
  std::int64_t in_, groups_, out_;
};

Values convolve(const Operation& op, const Values& x, const Values& w) {
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
Values data_gradient(const Operation& op, const Values& y, const Values& w) {
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
Values weight_gradient(const Operation& op, const Values& y, const Values& x) {
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
Values sum(const Operation& op, const Values& x, const Values& w) {
  List size = op.y.size;
  List spread(size.size());
  std::int64_t next = 1;
  List small = op.w.size;
  channels_last(size);
  channels_last(small);
  for (std::size_t d = size.size(); d-- > 0;) {
    spread[d] = small[d] == 1 ? 0 : next;
    next *= small[d];
  }
  Values y = x;
  for_each_offset(size, spread, [&](std::int64_t i, std::int64_t offset) {
    y[static_cast<std::size_t>(i)] += w[static_cast<std::size_t>(offset)];
  });
  return y;
}

}  // namespace

std::string fault_of(const Descriptor& graph) {
  const Attribute* ops = graph.find(CUDNN_ATTR_OPERATIONGRAPH_OPS);
  if (ops == nullptr || ops->children.empty()) return "a graph without operations";
  for (const auto& d : ops->children) {
    Operation op;
    if (std::string fault = read(*d, op); !fault.empty()) return fault;
    if (std::string fault = fault_of(op); !fault.empty()) return fault;
  }
  return {};
}

std::map<std::int64_t, std::int64_t> needed_pointers(const Descriptor& graph) {
  std::map<std::int64_t, std::int64_t> needed;
  for (const Operation& op : operations_of(graph))
    for (const Tensor* t : op.tensors())
      if (!t->is_virtual) needed[t->uid] = t->alignment;
  return needed;
}

void run_graph(const Descriptor& graph, const std::map<std::int64_t, void*>& pointers) {
  std::map<std::int64_t, Values> between;  // results that have no memory
  const auto get = [&](const Tensor& t) {
    return t.is_virtual ? between[t.uid] : load(t, pointers.at(t.uid));
  };
  for (const Operation& op : operations_of(graph)) {
    Values result;
    switch (op.type) {
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        result = data_gradient(op, get(op.y), get(op.w));
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        result = weight_gradient(op, get(op.y), get(op.x));
        break;
      case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        result = convolve(op, get(op.x), get(op.w));
        break;
      default:
        result = sum(op, get(op.x), get(op.w));
    }
    const Tensor& to = op.result();
    if (to.is_virtual) {
      between[to.uid] = std::move(result);
    } else {
      store(to, pointers.at(to.uid), result);
    }
  }
}

}  // namespace tessera::emulated
