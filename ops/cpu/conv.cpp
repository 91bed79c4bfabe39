#include "ops/cpu/conv.h"

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/conv_choice.h"
#include "ops/cpu/pointwise.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

void check_geometry(const char* op, int spatial, const ConvGeometry& g) {
  const auto check = [&](const Dims& d, const char* name, std::int64_t least) {
    TS_CHECK(d.size() == spatial, op, "{} {} for {} spatial dims; one number per dim is needed", name,
             d.str(), spatial);
    for (std::int64_t v : d)
      TS_CHECK(v >= least, op, "{} {}; numbers of at least {} are allowed", name, d.str(), least);
  };
  check(g.stride, "stride", 1);
  check(g.dilation, "dilation", 1);
  check(g.padding_lo, "padding", 0);
  check(g.padding_hi, "padding", 0);
  TS_CHECK(g.groups >= 1, op, "{} groups; at least 1 is needed", g.groups);
}

Dims spatial_sizes(const Array& a) { return Dims(a.sizes().span().subspan(2)); }

}  // namespace

void check_conv_bias(const char* op, const Array& bias, const Array& y) {
  if (!bias.defined()) return;
  TS_CHECK(bias.dim() == 1 && bias.size(0) == y.size(1) && bias.dtype() == y.dtype(), op,
           "bias {} {} for an output {} {}; one number per channel of the same type is needed",
           name_of(bias.dtype()), bias.sizes().str(), name_of(y.dtype()), y.sizes().str());
}

Array spread_bias(const Array& bias, const Array& y) {
  Dims strides = Dims::filled(y.dim(), 0);
  strides[1] = bias.stride(0);
  return bias.as_strided(y.sizes(), strides, bias.offset());
}
void fill_with_bias(const Array& y, const Array& bias) {
  if (!bias.defined()) return y.zero_();
  y.copy_(spread_bias(bias, y));
}

void check_conv_given(const char* op, const ConvArgs& args) {
  if (!args.z.defined()) return;
  TS_CHECK(
      args.activation != Activation::None && args.z.sizes() == args.y.sizes() &&
          args.z.dtype() == args.y.dtype(),
      op,
      "what an activation is given, {} {}, beside an output {} {}; there must be an activation, and they "
      "must be alike",
      name_of(args.z.dtype()), args.z.sizes().str(), name_of(args.y.dtype()), args.y.sizes().str());
}

void activate(const ConvArgs& args) {
  if (args.activation == Activation::None) return;
  unary({args.y, args.given(), forward_op(args.activation)});
}

ConvProblem conv_problem(const char* op, const Array& x, const Array& w, const Array& y,
                         const ConvGeometry& g) {
  const int n = x.dim();
  TS_CHECK(n >= 3 && n <= 5 && w.dim() == n && y.dim() == n, op,
           "input {}, weights {}, output {}; 3, 4 or 5 dims are needed, the same for all", x.sizes().str(),
           w.sizes().str(), y.sizes().str());
  check_geometry(op, n - 2, g);
  TS_CHECK(x.dtype() == w.dtype() && x.dtype() == y.dtype() && is_floating(x.dtype()), op,
           "types {}, {} and {}; one floating type is needed", name_of(x.dtype()), name_of(w.dtype()),
           name_of(y.dtype()));
  ConvProblem p;
  p.spatial = n - 2;
  p.samples = x.size(0);
  p.in_channels = x.size(1);
  p.out_channels = w.size(0);
  p.groups = g.groups;
  p.in = spatial_sizes(x);
  p.out = spatial_sizes(y);
  p.kernel = spatial_sizes(w);
  p.stride = g.stride;
  p.dilation = g.dilation;
  p.padding_lo = g.padding_lo;
  p.dtype = x.dtype();
  const bool no_channels = p.in_channels == 0 && p.out_channels == 0;  // of a rank without any of the groups
  TS_CHECK(p.in_channels % g.groups == 0 && p.out_channels % g.groups == 0 &&
               (w.size(1) == p.group_in() || no_channels) && y.size(0) == p.samples &&
               y.size(1) == p.out_channels,
           op,
           "input {}, weights {}, output {} with {} groups; [N, C, ...], [O, C / groups, ...], [N, O, ...] "
           "are needed",
           x.sizes().str(), w.sizes().str(), y.sizes().str(), g.groups);
  for (int d = 0; d < p.spatial; ++d) {
    TS_CHECK(p.kernel[d] >= 1, op, "kernel {}; sizes of at least 1 are needed", p.kernel.str());
    p.reach_hi.push_back((p.out[d] - 1) * p.stride[d] + p.dilation[d] * (p.kernel[d] - 1) + 1 - p.in[d] -
                         p.padding_lo[d]);
    TS_CHECK(p.out[d] == 0 || p.reach_hi[d] <= g.padding_hi[d], op,
             "output {} needs {} elements beyond the end of dim {} of input {}, the padding is {}",
             y.sizes().str(), p.reach_hi[d], d + 2, x.sizes().str(), g.padding_hi[d]);
  }
  return p;
}

namespace {

Array channels_last(const Dims& sizes, DType dtype) {
  return Array::empty_strided(sizes, channels_last_strides(sizes), dtype, Device::Cpu);
}

// A map as f32, its channels innermost where they are: turned round row by row it would be turned back by the
// convolution that reads it.
Array widened(const Array& map) {
  if (map.stride(1) != 1 || map.size(1) == 1) return map.to(DType::F32);
  Array wide = channels_last(map.sizes(), DType::F32);
  wide.copy_(map);
  return wide;
}

void forward_own(const ConvProblem& p, const ConvArgs& args) {
  if (conv_forward_few(p, args) || conv_forward_narrow(p, args) || conv_forward_depthwise(p, args) ||
      conv_forward_lines(p, args))
    return;
  if (!is_half(p.dtype)) return conv_forward_own(p, args);
  ConvArgs wide = args;
  wide.x = widened(args.x);
  wide.w = args.w.to(DType::F32);
  if (args.bias.defined()) wide.bias = args.bias.to(DType::F32);
  wide.y = channels_last(args.y.sizes(), DType::F32);
  wide.z = {};
  if (args.z.defined()) wide.activation = Activation::None;
  if (is_tiny(p)) {  // as our own loops at once: their choice costs as much as the call
    ConvProblem single = p;
    single.dtype = DType::F32;
    forward_own(single, wide);
  } else {
    conv_forward(wide);
  }
  copy_strided(args.given(), wide.y);
  if (args.z.defined()) activate(args);
}

void backward_data_own(const ConvProblem& p, const ConvBackwardDataArgs& args) {
  if (conv_backward_data_few(p, args) || conv_backward_data_depthwise(p, args) ||
      conv_backward_data_lines(p, args))
    return;
  if (!is_half(p.dtype)) {
    conv_backward_data_own(p, args);
  } else {
    ConvBackwardDataArgs wide{channels_last(args.dx.sizes(), DType::F32), widened(args.dy),
                              args.w.to(DType::F32), args.geometry};
    conv_backward_data(wide);
    args.dx.copy_(wide.dx);
  }
  if (args.bias.defined()) add_into(args.dx, spread_bias(args.bias, args.dx));
}

void backward_weight_own(const ConvProblem& p, const ConvBackwardWeightArgs& args) {
  if (conv_backward_weight_depthwise(p, args) || conv_backward_weight_lines(p, args)) return;
  if (!is_half(p.dtype)) return conv_backward_weight_own(p, args);
  ConvBackwardWeightArgs wide = args;
  wide.dy = widened(args.dy);
  wide.x = widened(args.x);
  wide.dw = Array::empty(args.dw.sizes(), DType::F32);
  conv_backward_weight(wide);
  args.dw.copy_(wide.dw);
}

}  // namespace

void conv_forward(const ConvArgs& args) {
  const ConvProblem p = conv_problem("conv", args.x, args.w, args.y, args.geometry);
  check_conv_bias("conv", args.bias, args.y);
  check_conv_given("conv", args);
  if (args.y.numel() == 0) return;
  if (args.x.numel() == 0 || args.w.numel() == 0) {
    fill_with_bias(args.given(), args.bias);
    return activate(args);
  }
  run_conv({ConvPass::Forward, p, args.x, args.y, args.geometry.replicated}, [&](ConvWay way) {
    if (way != ConvWay::Own) return conv_forward_onednn(p, args, way == ConvWay::Any);
    forward_own(p, args);
    return true;
  });
}

void conv_backward_data(const ConvBackwardDataArgs& args) {
  const ConvProblem p = conv_problem("conv backward data", args.dx, args.w, args.dy, args.geometry);
  check_conv_bias("conv backward data", args.bias, args.dx);
  if (args.dx.numel() == 0) return;
  if (args.dy.numel() == 0 || args.w.numel() == 0) return fill_with_bias(args.dx, args.bias);
  run_conv({ConvPass::BackwardData, p, args.dx, args.dy, args.geometry.replicated}, [&](ConvWay way) {
    if (way == ConvWay::Own) {
      backward_data_own(p, args);
    } else if (!conv_backward_data_onednn(p, args, way == ConvWay::Any)) {
      return false;
    } else if (args.bias.defined()) {
      add_into(args.dx, spread_bias(args.bias, args.dx));
    }
    return true;
  });
}

void conv_backward_weight(const ConvBackwardWeightArgs& args) {
  const ConvProblem p = conv_problem("conv backward weight", args.x, args.dw, args.dy, args.geometry);
  if (args.dw.numel() == 0) return;
  if (args.dy.numel() == 0 || args.x.numel() == 0) return args.dw.zero_();
  run_conv({ConvPass::BackwardWeight, p, args.x, args.dy, args.geometry.replicated}, [&](ConvWay way) {
    if (way != ConvWay::Own) return conv_backward_weight_onednn(p, args, way == ConvWay::Any);
    backward_weight_own(p, args);
    return true;
  });
}

Dims channels_last_strides(const Dims& sizes) {
  Dims strides = Dims::filled(sizes.size(), 1);
  std::int64_t next = sizes[1];
  for (int d = sizes.size() - 1; d >= 2; --d) {
    strides[d] = next;
    next *= sizes[d];
  }
  strides[0] = next;
  return strides;
}

}  // namespace tessera::cpu
