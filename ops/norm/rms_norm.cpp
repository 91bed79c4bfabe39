#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/norm/norm.h"
#include "ops/norm/norm_kernels.h"
#include "ops/norm/row_norm.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

void rms_local(LocalCall& l, const RowNorm& s) {
  const Array x = l.in[0].contiguous();
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  l.out[0] = Array::empty(x.sizes(), x.dtype(), x.device());
  l.out[1] = Array::empty(reduced_sizes(x.sizes(), s.dims, true), acc, x.device());
  const Array rows = as_rows(x, s);
  Array squares;
  if (rows_are_cut(l.in_spec(0), s)) {
    squares = Array::empty({rows.size(0)}, acc, x.device());
    kernels::row_squares(x.device(), {squares, rows});
    complete_rows(squares, l.in_spec(0), s);
  }
  kernels::rms_norm(x.device(),
                    {as_rows(l.out[0], s), flat(l.out[1]), rows, flat(l.in[1]), squares, s.count, s.eps});
}

struct RmsSaved {
  SavedTensor x;
  SavedTensor weight;
  Tensor rstd;
};

Tensors fused_backward(const BackwardContext& c, const Tensor& dy, const RmsSaved& saved, const RowNorm& s) {
  static const OpDef op{"rms_norm_backward"};
  const Tensor x = saved.x.unpack("rms_norm");
  const Tensor weight = saved.weight.unpack("rms_norm");
  const std::array<Tensor, 4> inputs{dy, x, saved.rstd, weight};
  const std::array<Dims, 2> sizes{x.sizes(), s.shape};
  const bool needs_weight = weight.defined() && c.needs(1);
  auto local = [&](LocalCall& l) {
    const Array in = l.in[1].contiguous();
    l.out[0] = Array::empty(in.sizes(), in.dtype(), in.device());
    l.out[1] = Array::empty(l.out_sizes(1, s.shape), in.dtype(), in.device());
    const Array rows = as_rows(in, s);
    const Array given = as_rows(l.in[0], s);
    Array dots;
    if (c.needs(0) && rows_are_cut(l.in_spec(1), s)) {
      dots = Array::empty({rows.size(0)}, l.in[2].dtype(), in.device());
      kernels::row_dots(in.device(), {dots, given, rows, flat(l.in[3])});
      complete_rows(dots, l.in_spec(1), s);
    }
    kernels::rms_norm_backward(
        in.device(), {c.needs(0) ? as_rows(l.out[0], s) : Array(), needs_weight ? flat(l.out[1]) : Array(),
                      given, rows, flat(l.in[2]), flat(l.in[3]), dots, s.count});
  };
  auto rule = [&] {
    const Rule forward = row_norm_rule(x, s, 1, 1);
    Rule r;
    r.inputs = {forward.outputs[0], forward.inputs[0], forward.outputs[1], forward.inputs[1]};
    r.outputs = {forward.inputs[0], forward.inputs[1]};
    r.linearity = Linearity::First;
    return r;
  };
  OpCall call_args;
  call_args.op = &op;
  call_args.inputs = inputs;
  call_args.output_sizes = sizes;
  call_args.parameters = Hash().add(s.dims);
  call_args.rule = rule;
  call_args.local = local;
  Tensors grads = call(call_args);
  if (!c.needs(0)) grads[0] = Tensor();
  if (!needs_weight) grads[1] = Tensor();
  return grads;
}

// With g = dy·w: dx = rstd·g − x·rstd³·mean(g·x) (Zhang and Sennrich 2019).
Tensors composed_backward(const BackwardContext& c, const Tensor& dy, const RmsSaved& saved,
                          const RowNorm& s) {
  const Tensor given = saved.x.unpack("rms_norm");
  const Tensor weight = saved.weight.unpack("rms_norm");
  const Tensor x = to(given, saved.rstd.dtype());
  const Tensor rstd = rsqrt(affine(mean(square(x), s.dims, true), 1.0, s.eps));
  Tensors grads(2);
  if (c.needs(0)) {
    const Tensor g = weight.defined() ? dy * weight : dy;
    grads[0] = to(g * rstd - x * (pow(rstd, 3.0) * mean(g * x, s.dims, true)), given.dtype());
  }
  if (weight.defined() && c.needs(1))
    grads[1] = to(sum_to_size(dy * (x * rstd), weight.sizes()), weight.dtype());
  return grads;
}

}  // namespace

Tensor rms_norm(const Tensor& x, const Dims& shape, const Tensor& weight, std::optional<double> eps) {
  static const OpDef op{"rms_norm"};
  RowNorm s = row_norm(op.name, x, shape, {&weight, 1});
  s.eps = eps.value_or(x.dtype() == DType::F64 ? std::numeric_limits<double>::epsilon()
                                               : std::numeric_limits<float>::epsilon());
  const std::array<Tensor, 2> inputs{x, weight};
  const std::array<Dims, 2> sizes{x.sizes(), reduced_sizes(x.sizes(), s.dims, true)};
  auto local = [&](LocalCall& l) { rms_local(l, s); };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    return row_norm_plan(row_norm_rule(x, s, 1, 0), in, x, s, 1);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    RmsSaved saved{SavedTensor(in[0]), SavedTensor(in[1]), out[1].detach()};
    return [s, saved](const BackwardContext& c, const Tensors& g) {
      return grad_enabled() ? composed_backward(c, g[0], saved, s) : fused_backward(c, g[0], saved, s);
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  c.parameters = Hash().add(s.dims);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c)[0];
}

}  // namespace tessera
