// Convolutions on the device: by cuDNN, or by our own kernel where the rule says so.
#include "ops/cpu/conv.h"

#include "ops/cpu/activation_ops.h"
#include "ops/cuda/conv_kernels.h"
#include "ops/cuda/conv_rule.h"
#include "ops/cuda/cudnn_plans.h"
#include "ops/cuda/library_operands.h"
#include "ops/cuda/precision.h"
#include "ops/cuda/register.h"
#include "ops/cuda/settings.h"
#include "ops/kernels.h"
#include "runtime/copy.h"
#include "runtime/cuda/array_walk.h"

namespace tessera::cuda {
namespace {

using cpu::channels_last_strides;
using cpu::ConvProblem;

// Dense, channels innermost, at an address that plans take.
bool fits(const Array& a) {
  const Dims wanted = channels_last_strides(a.sizes());
  for (int d = 0; d < a.dim(); ++d)
    if (a.size(d) != 1 && a.stride(d) != wanted[d]) return false;
  return is_library_aligned(a);
}

Array fresh(const Dims& sizes, DType dtype) {
  return Array::empty_strided(sizes, channels_last_strides(sizes), dtype, Device::Cuda);
}

// The same elements as cuDNN reads them.
Array readable(const Array& a) {
  if (fits(a)) return a;
  const Array copy = fresh(a.sizes(), a.dtype());
  copy_strided(copy, a);
  return copy;
}
// Where cuDNN writes what is to become `a`.
Array writable(const Array& a) { return fits(a) ? a : fresh(a.sizes(), a.dtype()); }
void give_back(const Array& from, const Array& to) {
  if (from.raw() != to.raw()) copy_strided(to, from);
}

// The map as the form wants it: its sizes, and the part that are elements of x.
Dims map_sizes(const ConvForm& form, const Array& x) {
  Dims sizes = x.sizes();
  for (int d = 2; d < x.dim(); ++d) sizes[d] = form.graph.x.size[d + 2 + form.graph.spatial - x.dim()];
  return sizes;
}
struct Part {
  Array map;
  Array x;
};
Part common_part(const ConvForm& form, const Array& map, const Array& x) {
  Dims begin = Dims::filled(x.dim(), 0);
  Dims extent = x.sizes();
  Dims front = begin;
  for (int d = 2; d < x.dim(); ++d) {
    front[d] = form.front[d - 2];
    extent[d] = form.taken[d - 2];
  }
  return {map.box(front, extent), x.box(begin, extent)};
}

Array readable_map(const ConvForm& form, const Array& x) {
  if (form.whole) return readable(x);
  const Array map = fresh(map_sizes(form, x), x.dtype());
  const Part part = common_part(form, map, x);
  if (part.map.numel() != map.numel()) map.zero_();
  copy_strided(part.map, part.x);
  return map;
}
Array writable_map(const ConvForm& form, const Array& x) {
  return form.whole ? writable(x) : fresh(map_sizes(form, x), x.dtype());
}
// Elements that no window covers have no gradient.
void give_back_map(const ConvForm& form, const Array& map, const Array& x) {
  if (form.whole) return give_back(map, x);
  const Part part = common_part(form, map, x);
  if (part.x.numel() != x.numel()) x.zero_();
  copy_strided(part.x, part.map);
}

struct Operands {
  Array x, w, y, bias;
  Array z = {};  // what a graph's activation is given, if it is kept
};

ConvElements elements_for(const ConvProblem& p, const Operands& o) {
  ConvElements e;
  e.x = elements_of(o.x);
  e.w = elements_of(o.w);
  e.y = elements_of(o.y);
  e.samples = p.samples;
  e.groups = p.groups;
  e.group_in = p.group_in();
  e.group_out = p.group_out();
  const int first = 3 - p.spatial;
  for (int d = 0; d < p.spatial; ++d) {
    e.in[first + d] = p.in[d];
    e.out[first + d] = p.out[d];
    e.kernel[first + d] = p.kernel[d];
    e.step[first + d] = p.stride[d];
    e.dilation[first + d] = p.dilation[d];
    e.padding[first + d] = p.padding_lo[d];
  }
  const auto strides = [&](const Array& a, std::int64_t(&to)[5]) {
    for (int d = 0; d < a.dim(); ++d) to[d < 2 ? d : first + d] = a.stride(d);
  };
  strides(o.x, e.x_stride);
  strides(o.w, e.w_stride);
  strides(o.y, e.y_stride);
  if (o.bias.defined()) {
    e.bias = elements_of(o.bias);
    e.bias_stride = o.bias.stride(0);
  }
  return e;
}

bool takes_own_kernel(const ConvForm& form) {
  return !cudnn_allowed() || why_own_kernel(form.graph) != nullptr;
}

void run(const char* op, const ConvGraph& graph, const Operands& o) {
  std::array<GraphPointer, 5> pointers{{{kConvX, o.x.raw()}, {kConvW, o.w.raw()}, {kConvY, o.y.raw()}}};
  std::size_t n = 3;
  if (graph.bias) pointers[n++] = {kConvBias, o.bias.raw()};
  if (graph.keeps) pointers[n++] = {kConvGiven, o.z.raw()};
  run_graph(op, graph, std::span(pointers.data(), n));
}

// y = f(z) as a launch of its own.
void activate(const cpu::ConvArgs& args, const Array& z) {
  if (args.activation == cpu::Activation::None) return give_back(z, args.y);
  kernels::unary(Device::Cuda, {args.y, z, cpu::forward_op(args.activation)});
}

void conv_forward_cuda(const cpu::ConvArgs& args) {
  const char* op = "conv";
  const ConvProblem p = cpu::conv_problem(op, args.x, args.w, args.y, args.geometry);
  cpu::check_conv_bias(op, args.bias, args.y);
  cpu::check_conv_given(op, args);
  if (args.y.numel() == 0) return;
  if (args.x.numel() == 0 || args.w.numel() == 0) {
    cpu::fill_with_bias(args.given(), args.bias);
    return activate(args, args.given());
  }
  const ConvForm form = conv_form(ConvKind::Forward, p,
                                  {args.bias.defined(), args.activation, args.z.defined()}, tf32_allowed());
  if (takes_own_kernel(form)) {
    conv_forward_elements(elements_for(p, {args.x, args.w, args.given(), args.bias}), current_stream());
    check_launch(op);
    return activate(args, args.given());
  }
  const bool apart = form.graph.activation != args.activation;
  Operands o{readable_map(form, args.x), readable(args.w), writable(apart ? args.given() : args.y),
             dense_for_library(args.bias)};
  if (form.graph.keeps) o.z = writable(args.z);
  run(op, form.graph, o);
  if (apart) {
    if (args.z.defined()) give_back(o.y, args.z);
    return activate(args, o.y);
  }
  give_back(o.y, args.y);
  if (form.graph.keeps) give_back(o.z, args.z);
}

void conv_backward_data_cuda(const cpu::ConvBackwardDataArgs& args) {
  const char* op = "conv backward data";
  const ConvProblem p = cpu::conv_problem(op, args.dx, args.w, args.dy, args.geometry);
  cpu::check_conv_bias(op, args.bias, args.dx);
  if (args.dx.numel() == 0) return;
  if (args.dy.numel() == 0 || args.w.numel() == 0) return cpu::fill_with_bias(args.dx, args.bias);
  const ConvForm form = conv_form(ConvKind::DataGradient, p, {}, tf32_allowed());
  if (takes_own_kernel(form)) {
    conv_data_gradient_elements(elements_for(p, {args.dx, args.w, args.dy, args.bias}), current_stream());
    return check_launch(op);
  }
  const Operands o{writable_map(form, args.dx), readable(args.w), readable(args.dy), {}};
  run(op, form.graph, o);
  give_back_map(form, o.x, args.dx);
  if (args.bias.defined()) add_into(args.dx, cpu::spread_bias(args.bias, args.dx));
}

void conv_backward_weight_cuda(const cpu::ConvBackwardWeightArgs& args) {
  const char* op = "conv backward weight";
  const ConvProblem p = cpu::conv_problem(op, args.x, args.dw, args.dy, args.geometry);
  if (args.dw.numel() == 0) return;
  if (args.dy.numel() == 0 || args.x.numel() == 0) return args.dw.zero_();
  const ConvForm form = conv_form(ConvKind::WeightGradient, p, {}, tf32_allowed());
  if (takes_own_kernel(form)) {
    conv_weight_gradient_elements(elements_for(p, {args.x, args.dw, args.dy, {}}), current_stream());
    return check_launch(op);
  }
  const Operands o{readable_map(form, args.x), writable(args.dw), readable(args.dy), {}};
  run(op, form.graph, o);
  give_back(o.w, args.dw);
}

}  // namespace

void register_convolutions() {
  kernels::conv_forward.set(Device::Cuda, &conv_forward_cuda);
  kernels::conv_backward_data.set(Device::Cuda, &conv_backward_data_cuda);
  kernels::conv_backward_weight.set(Device::Cuda, &conv_backward_weight_cuda);
}

}  // namespace tessera::cuda
