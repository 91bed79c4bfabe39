// Element-wise operations, matrix products, reductions and views.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "emulated/cudnn_operation.h"

namespace tessera::emulated {
namespace {

// The tensors of an operation that are given; a fault if one that is needed is not, or is not known here.
std::string take(const Descriptor& d, const std::vector<cudnnBackendAttributeName_t>& inputs,
                 cudnnBackendAttributeName_t result, Operation& op) {
  for (const auto name : inputs) {
    const auto t = d.child(name);
    if (!t) return "an operation without all of its tensors";
    op.inputs.push_back(tensor_of(*t));
  }
  const auto y = d.child(result);
  if (!y) return "an operation without a result";
  op.result = tensor_of(*y);
  for (const Tensor& t : op.inputs)
    if (std::string fault = fault_of(t); !fault.empty()) return fault;
  return fault_of(op.result);
}

// Strides of dense elements in row-major order; 0 along dims of size 1 where `to` is larger. Nothing if t
// does not broadcast to it.
std::optional<List> spread(const Tensor& t, const Tensor& to) {
  List strides(to.size.size(), 0);
  if (t.numel() == 1) return strides;
  if (t.size.size() != to.size.size()) return std::nullopt;
  std::int64_t next = 1;
  for (std::size_t d = t.size.size(); d-- > 0;) {
    if (t.size[d] != to.size[d] && t.size[d] != 1) return std::nullopt;
    strides[d] = t.size[d] == 1 ? 0 : next;
    next *= t.size[d];
  }
  return strides;
}

using Function = double (*)(double x, double b, double t);
struct Mode {
  cudnnPointwiseMode_t mode;
  int inputs;
  Function f;
};
constexpr Mode kModes[] = {
    {CUDNN_POINTWISE_ADD, 2, [](double x, double b, double) { return x + b; }},
    {CUDNN_POINTWISE_SUB, 2, [](double x, double b, double) { return x - b; }},
    {CUDNN_POINTWISE_MUL, 2, [](double x, double b, double) { return x * b; }},
    {CUDNN_POINTWISE_DIV, 2, [](double x, double b, double) { return x / b; }},
    {CUDNN_POINTWISE_CMP_GE, 2, [](double x, double b, double) { return x >= b ? 1.0 : 0.0; }},
    {CUDNN_POINTWISE_EXP, 1, [](double x, double, double) { return std::exp(x); }},
    {CUDNN_POINTWISE_LOG, 1, [](double x, double, double) { return std::log(x); }},
    {CUDNN_POINTWISE_IDENTITY, 1, [](double x, double, double) { return x; }},
    {CUDNN_POINTWISE_GELU_FWD, 1,
     [](double x, double, double) { return 0.5 * x * std::erfc(-x * std::sqrt(0.5)); }},
    {CUDNN_POINTWISE_GELU_APPROX_TANH_FWD, 1,
     [](double x, double, double) {
       return 0.5 * x * (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
     }},
    {CUDNN_POINTWISE_SWISH_FWD, 1, [](double x, double, double) { return x / (1 + std::exp(-x)); }},
    {CUDNN_POINTWISE_BINARY_SELECT, 3, [](double x, double b, double t) { return t != 0 ? x : b; }},
};

// The index of every element along one dim.
Values numbered(const Tensor& t, std::size_t axis) {
  List strides(t.size.size(), 0);
  strides[axis] = 1;
  Values y(static_cast<std::size_t>(t.numel()));
  for_each_offset(t.size, strides,
                  [&](std::size_t i, std::int64_t index) { y[i] = static_cast<double>(index); });
  return y;
}

std::string read_mode(const Mode& mode, Operation& op) {
  std::vector<List> strides;
  for (const Tensor& t : op.inputs) {
    const auto s = spread(t, op.result);
    if (!s) return "sizes that do not go together";
    strides.push_back(*s);
  }
  op.run = [f = mode.f, strides, size = op.result.size](const std::vector<Values>& in) {
    Values operand[3];
    for (std::size_t k = 0; k < in.size(); ++k) {
      for_each_offset(size, strides[k], [&](std::size_t, std::int64_t offset) {
        operand[k].push_back(in[k][static_cast<std::size_t>(offset)]);
      });
    }
    Values y(operand[0].size());
    for (Values& o : operand) o.resize(y.size());
    for (std::size_t i = 0; i < y.size(); ++i) y[i] = f(operand[0][i], operand[1][i], operand[2][i]);
    return y;
  };
  return {};
}

// NaN passes, as the descriptor must ask for; what is above the upper bound, infinity, becomes that.
std::string read_relu(const Descriptor& how, Operation& op) {
  const double bound = how.number(CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 0.0);
  const bool plain = how.number(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, -1.0) == 0.0 &&
                     how.number(CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, -1.0) == 0.0 &&
                     bound >= static_cast<double>(std::numeric_limits<float>::max());
  if (!plain) return "a ReLU with bounds of its own";
  if (how.value(CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_NOT_PROPAGATE_NAN) != CUDNN_PROPAGATE_NAN)
    return "a ReLU that makes numbers of NaN";
  if (op.inputs[0].size != op.result.size) return "sizes that do not go together";
  op.run = [bound](const std::vector<Values>& in) {
    Values y = in[0];
    for (double& v : y) v = v < 0 ? 0.0 : v > bound ? bound : v;
    return y;
  };
  return {};
}

}  // namespace

std::string fault_of_compute(const Descriptor& how, cudnnBackendAttributeName_t name, const Operation& op) {
  const auto wide = [](const Tensor& t) { return t.type == CUDNN_DATA_DOUBLE; };
  const bool any = wide(op.result) || std::any_of(op.inputs.begin(), op.inputs.end(), wide);
  const auto given = how.value(name, CUDNN_DATA_INT8);
  const bool whole = op.result.type == CUDNN_DATA_INT32 || op.result.type == CUDNN_DATA_BOOLEAN;
  if (given == (any ? CUDNN_DATA_DOUBLE : CUDNN_DATA_FLOAT) || (whole && given == op.result.type)) return {};
  return "an operation that computes in another type";
}

namespace {

std::string read_known(const Descriptor& d, const Descriptor& how, Operation& op) {
  for (const auto name : {CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2})
    if (d.number(name, 1.0) != 1.0) return "an element-wise operation with a factor";
  const auto mode = how.value(CUDNN_ATTR_POINTWISE_MODE, CUDNN_POINTWISE_POW);
  std::vector<cudnnBackendAttributeName_t> names{CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
                                                 CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
                                                 CUDNN_ATTR_OPERATION_POINTWISE_TDESC};
  if (mode == CUDNN_POINTWISE_GEN_INDEX) {
    names.resize(1);
    if (std::string fault = take(d, names, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op); !fault.empty())
      return fault;
    const auto axis = static_cast<std::size_t>(how.value<std::int64_t>(CUDNN_ATTR_POINTWISE_AXIS, -1));
    if (axis >= op.result.size.size()) return "an index along a dim that is not there";
    op.run = [axis, t = op.result](const std::vector<Values>&) { return numbered(t, axis); };
    return {};
  }
  if (mode == CUDNN_POINTWISE_RELU_FWD) {
    names.resize(1);
    std::string fault = take(d, names, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op);
    return fault.empty() ? read_relu(how, op) : fault;
  }
  if (mode == CUDNN_POINTWISE_SWISH_FWD && how.number(CUDNN_ATTR_POINTWISE_SWISH_BETA, 0.0) != 1.0)
    return "a swish with a factor";
  const auto* known =
      std::find_if(std::begin(kModes), std::end(kModes), [&](const Mode& m) { return m.mode == mode; });
  if (known == std::end(kModes)) return "an element-wise operation that the stand-in does not know";
  names.resize(static_cast<std::size_t>(known->inputs));
  if (std::string fault = take(d, names, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, op); !fault.empty())
    return fault;
  return read_mode(*known, op);
}

}  // namespace

std::string read_pointwise(const Descriptor& d, Operation& op) {
  const auto how = d.child(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR);
  if (!how) return "an element-wise operation that does not say which";
  std::string fault = read_known(d, *how, op);
  return fault.empty() ? fault_of_compute(*how, CUDNN_ATTR_POINTWISE_MATH_PREC, op) : fault;
}

std::string read_product(const Descriptor& d, Operation& op) {
  for (const auto name :
       {CUDNN_ATTR_OPERATION_MATMUL_GEMM_M_OVERRIDE_DESC, CUDNN_ATTR_OPERATION_MATMUL_GEMM_N_OVERRIDE_DESC,
        CUDNN_ATTR_OPERATION_MATMUL_GEMM_K_OVERRIDE_DESC})
    if (d.child(name)) return "a product with sizes of its own";
  if (std::string fault = take(d, {CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_ATTR_OPERATION_MATMUL_BDESC},
                               CUDNN_ATTR_OPERATION_MATMUL_CDESC, op);
      !fault.empty())
    return fault;
  const auto how = d.child(CUDNN_ATTR_OPERATION_MATMUL_DESC);
  if (!how) return "a product that does not say how";
  if (std::string fault = fault_of_compute(*how, CUDNN_ATTR_MATMUL_COMP_TYPE, op); !fault.empty())
    return fault;
  const List a = op.inputs[0].size;
  const List b = op.inputs[1].size;
  const List c = op.result.size;
  // Heads of b may be shared by several of a.
  if (a.size() != 4 || b.size() != 4 || c.size() != 4 || a[0] != c[0] || b[0] != c[0] || a[1] != c[1] ||
      c[1] % b[1] != 0 || a[2] != c[2] || b[3] != c[3] || a[3] != b[2])
    return "a product of sizes that do not go together";
  op.run = [=](const std::vector<Values>& in) {
    const auto m = static_cast<std::size_t>(c[2]);
    const auto n = static_cast<std::size_t>(c[3]);
    const auto k = static_cast<std::size_t>(a[3]);
    const auto shared = static_cast<std::size_t>(c[1] / b[1]);
    Values y(static_cast<std::size_t>(c[0] * c[1]) * m * n);
    for (std::size_t h = 0; h < static_cast<std::size_t>(c[0] * c[1]); ++h)
      for (std::size_t i = 0; i < m; ++i)
        for (std::size_t p = 0; p < k; ++p) {
          const double factor = in[0][(h * m + i) * k + p];
          const double* row = in[1].data() + (h / shared * k + p) * n;
          double* to = y.data() + (h * m + i) * n;
          for (std::size_t j = 0; j < n; ++j) to[j] += factor * row[j];
        }
    return y;
  };
  return {};
}

std::string read_reduction(const Descriptor& d, Operation& op) {
  const auto how = d.child(CUDNN_ATTR_OPERATION_REDUCTION_DESC);
  if (!how) return "a reduction that does not say which";
  if (std::string fault =
          take(d, {CUDNN_ATTR_OPERATION_REDUCTION_XDESC}, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, op);
      !fault.empty())
    return fault;
  if (std::string fault = fault_of_compute(*how, CUDNN_ATTR_REDUCTION_COMP_TYPE, op); !fault.empty())
    return fault;
  const auto kind = how->value(CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_REDUCE_TENSOR_NORM1);
  if (kind != CUDNN_REDUCE_TENSOR_ADD && kind != CUDNN_REDUCE_TENSOR_MAX)
    return "a reduction that the stand-in does not know";
  const List x = op.inputs[0].size;
  const List y = op.result.size;
  if (x.size() != y.size()) return "a reduction to other dims";
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i] % y[i] != 0) return "a reduction to a size that is no divisor";
  op.run = [=](const std::vector<Values>& in) {
    const bool largest = kind == CUDNN_REDUCE_TENSOR_MAX;
    std::int64_t numel = 1;
    for (auto s : y) numel *= s;
    Values out(static_cast<std::size_t>(numel), largest ? -std::numeric_limits<double>::infinity() : 0.0);
    List at(x.size(), 0);
    for (const double v : in[0]) {
      std::size_t i = 0;  // neighbours along a dim are joined
      for (std::size_t e = 0; e < x.size(); ++e)
        i = i * static_cast<std::size_t>(y[e]) + static_cast<std::size_t>(at[e] / (x[e] / y[e]));
      out[i] = !largest ? out[i] + v : v > out[i] || std::isnan(v) ? v : out[i];
      for (std::size_t e = x.size(); e-- > 0 && ++at[e] == x[e];) at[e] = 0;
    }
    return out;
  };
  return {};
}

// The same memory with other sizes and strides, as if both tensors had any.
std::string read_view(const Descriptor& d, Operation& op) {
  if (std::string fault =
          take(d, {CUDNN_ATTR_OPERATION_RESHAPE_XDESC}, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, op);
      !fault.empty())
    return fault;
  const Tensor x = op.inputs[0];
  const Tensor y = op.result;
  std::int64_t room = 1;
  for (std::size_t i = 0; i < x.size.size(); ++i) room += (x.size[i] - 1) * x.stride[i];
  std::vector<char> held(static_cast<std::size_t>(room), 0);
  for_each_offset(x.size, x.stride,
                  [&](std::size_t, std::int64_t o) { held[static_cast<std::size_t>(o)] = 1; });
  bool inside = true;
  for_each_offset(y.size, y.stride, [&](std::size_t, std::int64_t o) {
    inside = inside && o < room && held[static_cast<std::size_t>(o)] != 0;
  });
  if (!inside) return "a view of memory that its tensor does not have";
  op.run = [=](const std::vector<Values>& in) {
    Values memory(static_cast<std::size_t>(room));
    for_each_offset(x.size, x.stride,
                    [&](std::size_t i, std::int64_t o) { memory[static_cast<std::size_t>(o)] = in[0][i]; });
    Values out(static_cast<std::size_t>(y.numel()));
    for_each_offset(y.size, y.stride,
                    [&](std::size_t i, std::int64_t o) { out[i] = memory[static_cast<std::size_t>(o)]; });
    return out;
  };
  return {};
}

}  // namespace tessera::emulated
