#include "ops/norm/norm.h"

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/norm/norm_kernels.h"
#include "ops/norm/row_norm.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

Array pointwise(cpu::BinaryOp op, const Array& a, const Array& b) {
  Array out = Array::empty(a.sizes(), a.dtype(), a.device());
  kernels::binary(a.device(), {out, a, b.expand(a.sizes()), op});
  return out;
}

// The mean with both its terms.
Array in_double(const Moments& m) {
  return pointwise(cpu::BinaryOp::Add, m.mean.to(DType::F64), m.rest.to(DType::F64));
}

// A normalised dim is cut: statistics of all ranks in one message, then element-wise. The mean that is kept
// has both its terms, in double. Statistics are outputs `at` and the next.
void norm_over_ranks(LocalCall& l, const RowNorm& s, const Array& given, std::size_t at) {
  const Moments m = global_moments(given, l.in_spec(0), s.dims);
  const Array x = given.to(m.mean.dtype());
  Array variance = Array::empty(m.m2.sizes(), m.m2.dtype(), x.device());
  kernels::unary(x.device(), {variance, m.m2, cpu::UnaryOp::Affine, 1.0 / s.count, s.eps});
  const Array rstd = Array::empty(variance.sizes(), variance.dtype(), x.device());
  kernels::unary(x.device(), {rstd, variance, cpu::UnaryOp::Rsqrt});
  Array y = pointwise(cpu::BinaryOp::Sub, x, m.mean);
  y = pointwise(cpu::BinaryOp::Sub, y, m.rest);
  y = pointwise(cpu::BinaryOp::Mul, y, rstd);
  if (l.in[1].defined()) y = pointwise(cpu::BinaryOp::Mul, y, l.in[1].to(y.dtype()));
  if (l.in[2].defined()) y = pointwise(cpu::BinaryOp::Add, y, l.in[2].to(y.dtype()));
  l.out[0] = y.to(given.dtype());
  l.out[at] = in_double(m);
  l.out[at + 1] = rstd;
}

// Inputs x, weight, bias [, residual]; outputs y, [x + residual,] mean, rstd.

void norm_local(LocalCall& l, const RowNorm& s) {
  const Array residual = l.in.size() > 3 ? l.in[3].contiguous() : Array();
  const std::size_t at = residual.defined() ? 2 : 1;
  if (rows_are_cut(l.in_spec(0), s)) {
    if (residual.defined()) l.out[1] = pointwise(cpu::BinaryOp::Add, l.in[0], residual);
    norm_over_ranks(l, s, residual.defined() ? l.out[1] : l.in[0], at);
    return;
  }
  const Array x = l.in[0].contiguous();
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Dims stats = reduced_sizes(x.sizes(), s.dims, true);
  for (std::size_t i = 0; i < at; ++i) l.out[i] = Array::empty(x.sizes(), x.dtype(), x.device());
  for (std::size_t i : {at, at + 1}) l.out[i] = Array::empty(stats, acc, x.device());
  cpu::LayerNormArgs args{as_rows(l.out[0], s),
                          flat(l.out[at]),
                          flat(l.out[at + 1]),
                          as_rows(x, s),
                          flat(l.in[1]),
                          flat(l.in[2]),
                          s.eps};
  if (residual.defined()) {
    args.residual = as_rows(residual, s);
    args.sum = as_rows(l.out[1], s);
  }
  kernels::layer_norm(x.device(), args);
}

struct NormSaved {
  SavedTensor x;  // what was normalised
  SavedTensor weight;
  Tensor mean;
  Tensor rstd;
  bool has_weight = false;
  bool has_bias = false;
};

struct Wanted {
  bool x, weight, bias;
};

// Rows that lie on several ranks: their sums in one message, then the gradients.
void backward_over_ranks(LocalCall& l, const RowNorm& s, const Wanted& wanted) {
  const Array x = l.in[1].contiguous();
  const Array rows = as_rows(x, s);
  const Array dy = as_rows(l.in[0], s);
  // A mean found where rows were whole is a float, too few digits for one far from zero.
  const bool is_rough = x.dtype() == DType::F32 && l.in[2].dtype() == DType::F32;
  const Array mean =
      flat(is_rough ? in_double(global_moments(x, l.in_spec(1), s.dims)) : l.in[2].to(DType::F64));
  const Array rstd = flat(l.in[3]);
  const Array weight = flat(l.in[4]);
  Array sums;
  if (wanted.x) {
    sums = Array::empty({2, rows.size(0)}, rstd.dtype(), x.device());
    kernels::layer_norm_sums(x.device(), {sums, dy, rows, mean, rstd, weight});
    complete_rows(sums, l.in_spec(1), s);
  }
  kernels::layer_norm_gradient(
      x.device(), {wanted.x ? as_rows(l.out[0], s) : Array(), wanted.weight ? flat(l.out[1]) : Array(),
                   wanted.bias ? flat(l.out[2]) : Array(), dy, rows, mean, rstd, weight, sums, s.count});
}

// Inputs dy, x, mean, rstd, weight, the gradient of the sum that was normalised; either may be absent.
void backward_local(LocalCall& l, const RowNorm& s, const Wanted& wanted) {
  const Array in = l.in[1].contiguous();
  l.out[0] = Array::empty(in.sizes(), in.dtype(), in.device());
  for (std::size_t i : {1, 2}) l.out[i] = Array::empty(l.out_sizes(i, s.shape), in.dtype(), in.device());
  if (rows_are_cut(l.in_spec(1), s)) {
    backward_over_ranks(l, s, wanted);
    if (wanted.x && l.in[5].defined()) add_into(l.out[0], l.in[5]);
    return;
  }
  kernels::layer_norm_backward(
      in.device(), {wanted.x ? as_rows(l.out[0], s) : Array(), wanted.weight ? flat(l.out[1]) : Array(),
                    wanted.bias ? flat(l.out[2]) : Array(), as_rows(l.in[0], s), as_rows(in, s),
                    flat(l.in[2].to(l.in[3].dtype())), flat(l.in[3]), flat(l.in[4]),
                    l.in[5].defined() ? as_rows(l.in[5], s) : Array()});
}

// dx, dweight, dbias by fused kernels; the sums over rows that other ranks hold stay owed. `dsum` is added to
// dx, if defined.
Tensors fused_backward(const Wanted& wanted, const Tensor& dy, const Tensor& dsum, const NormSaved& saved,
                       const RowNorm& s) {
  static const OpDef op{"layer_norm_backward"};
  const Tensor x = saved.x.unpack("layer_norm");
  const Tensor weight = saved.weight.unpack("layer_norm");
  const std::array<Tensor, 6> inputs{dy, x, saved.mean, saved.rstd, weight, dsum};
  const std::array<Dims, 3> sizes{x.sizes(), s.shape, s.shape};
  auto local = [&](LocalCall& l) { backward_local(l, s, wanted); };
  auto rule = [&] {
    const Rule forward = row_norm_rule(x, s, 2, 2);
    Rule r;
    r.inputs = {forward.outputs[0], forward.inputs[0], forward.outputs[1],
                forward.outputs[2], forward.inputs[1], forward.inputs[0]};
    r.outputs = {forward.inputs[0], forward.inputs[1], forward.inputs[1]};
    r.linearity = dsum.defined() ? Linearity::None : Linearity::First;
    return r;
  };
  OpCall call_args;
  call_args.op = &op;
  call_args.inputs = inputs;
  call_args.output_sizes = sizes;
  call_args.parameters = Hash().add(s.dims).add(std::int64_t{dsum.defined()});
  call_args.rule = rule;
  call_args.local = local;
  Tensors grads = call(call_args);
  if (!wanted.x) grads[0] = Tensor();
  if (!wanted.weight) grads[1] = Tensor();
  if (!wanted.bias) grads[2] = Tensor();
  return grads;
}

// With x̂ = (x − mean)·rstd and g = dy·w: dx = rstd·(g − mean(g) − x̂·mean(g·x̂)) (Ba et al. 2016). All of it
// in the type of the statistics: means of bfloat16 terms would keep 8 bits of a difference of them. The shift
// by the mean as it was found is a constant that changes neither value nor gradient, but what follows keeps
// its digits.
Tensors composed_backward(const Wanted& wanted, const Tensor& dy_given, const Tensor& dsum,
                          const NormSaved& saved, const RowNorm& s) {
  const DType dtype = saved.rstd.dtype();
  const Tensor given = saved.x.unpack("layer_norm");
  const Tensor weight = saved.weight.unpack("layer_norm");
  const Tensor dy = to(dy_given, dtype);
  const Tensor near_mean = to(given, dtype) - to(saved.mean, dtype);
  const auto [variance, average] = var_mean(near_mean, s.dims, 0.0, true);
  const Tensor rstd = rsqrt(variance + s.eps);
  const Tensor normal = (near_mean - average) * rstd;
  Tensors grads(3);
  if (wanted.x) {
    const Tensor g = weight.defined() ? dy * weight : dy;
    const Tensor dx = rstd * (g - mean(g, s.dims, true) - normal * mean(g * normal, s.dims, true));
    grads[0] = to(dx, given.dtype());
    if (dsum.defined()) grads[0] = grads[0] + dsum;
  }
  if (wanted.weight) grads[1] = to(sum_to_size(dy * normal, weight.sizes()), weight.dtype());
  if (wanted.bias) grads[2] = to(sum_to_size(dy, s.shape), given.dtype());
  return grads;
}

Tensors norm_gradient(const BackwardContext& c, const Tensors& g, const NormSaved& saved, const RowNorm& s) {
  const bool added = g.size() > 3;  // y, the sum, mean, rstd
  const Wanted wanted{c.needs(0) || (added && c.needs(3)), saved.has_weight && c.needs(1),
                      saved.has_bias && c.needs(2)};
  const Tensor dsum = added ? g[1] : Tensor();
  Tensors grads(3);
  if (!g[0].defined())
    grads[0] = dsum;
  else
    grads = grad_enabled() ? composed_backward(wanted, g[0], dsum, saved, s)
                           : fused_backward(wanted, g[0], dsum, saved, s);
  if (added) grads.push_back(grads[0]);
  return grads;
}

// y, [x + residual,] mean, rstd. inputs: x, weight, bias [, residual].
Tensors norm_call(const OpDef& op, std::span<const Tensor> inputs, const RowNorm& s) {
  const Tensor& x = inputs[0];
  const bool added = inputs.size() > 3;
  const Dims stats = reduced_sizes(x.sizes(), s.dims, true);
  std::vector<Dims> sizes{x.sizes(), stats, stats};
  if (added) sizes.insert(sizes.begin(), x.sizes());
  auto local = [&](LocalCall& l) { norm_local(l, s); };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    Rule rule = row_norm_rule(x, s, 2, 0);
    if (added) {
      rule.inputs.push_back(rule.inputs[0]);
      rule.outputs.push_back(rule.outputs[0]);
    }
    return row_norm_plan(rule, in, x, s, 2);
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    const std::size_t at = added ? 2 : 1;
    NormSaved saved{added ? SavedTensor::output(out[1]) : SavedTensor(in[0]),
                    SavedTensor(in[1]),
                    out[at].detach(),
                    out[at + 1].detach(),
                    in[1].defined(),
                    in[2].defined()};
    return [s, saved](const BackwardContext& c, const Tensors& g) { return norm_gradient(c, g, saved, s); };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  c.parameters = Hash().add(s.dims);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c);
}

}  // namespace

Tensor layer_norm(const Tensor& x, const Dims& shape, const Tensor& weight, const Tensor& bias, double eps) {
  static const OpDef op{"layer_norm"};
  const std::array<Tensor, 3> inputs{x, weight, bias};
  RowNorm s = row_norm(op.name, x, shape, std::span(inputs).subspan(1));
  s.eps = eps;
  return norm_call(op, inputs, s)[0];
}

AddLayerNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Dims& shape,
                            const AddLayerNormOptions& options) {
  static const OpDef op{"add_layer_norm"};
  const std::array<Tensor, 4> inputs{x, options.weight, options.bias, residual};
  RowNorm s = row_norm(op.name, x, shape, std::span(inputs).subspan(1, 2));
  s.eps = options.eps;
  TS_CHECK(residual.defined() && residual.sizes() == x.sizes() && residual.dtype() == x.dtype(), op.name,
           "x {} {} and the residual {} must be alike", x.sizes().str(), name_of(x.dtype()),
           residual.defined() ? fmt::format("{} {}", residual.sizes().str(), name_of(residual.dtype()))
                              : "(undefined)");
  const Tensors out = norm_call(op, inputs, s);
  return {out[1], out[0]};
}

}  // namespace tessera
