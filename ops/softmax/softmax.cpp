#include "ops/softmax/softmax.h"

#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::UnaryOp;

Array binary(BinaryOp op, const Array& a, const Array& b, DType out_type) {
  Array out = Array::empty(a.sizes(), out_type, a.device());
  kernels::binary(a.device(), {out, a, b.expand(a.sizes()), op});
  return out;
}

Array unary(UnaryOp op, const Array& a) {
  Array out = Array::empty(a.sizes(), a.dtype(), a.device());
  kernels::unary(a.device(), {out, a, op});
  return out;
}

// Rows without any finite maximum are shifted by 0, so that a part without elements adds nothing.
Array finite_max(const Array& max) {
  Array floor = Array::full(max.sizes(), -std::numeric_limits<double>::infinity(), max.dtype(), max.device());
  Array is_floor = Array::empty(max.sizes(), DType::Bool, max.device());
  kernels::binary(max.device(), {is_floor, max, floor, BinaryOp::Eq});
  Array out = Array::empty(max.sizes(), max.dtype(), max.device());
  kernels::where(max.device(), {out, is_floor, Array::zeros(max.sizes(), max.dtype(), max.device()), max});
  return out;
}

Array reduced(const Array& x, int dim, cpu::ReduceKind kind) {
  Dims sizes = x.sizes();
  sizes[dim] = 1;
  Array out = Array::empty(sizes, x.dtype(), x.device());
  kernels::reduce(x.device(), {out, x, kind});
  return out;
}

// The dim is cut: maxima and sums of all parts in one message, then every rank finishes its own elements.
Array softmax_over_ranks(const Array& given, const ShardSpec& spec, int dim, bool log) {
  const Array x = given.dtype() == DType::BF16 ? given.to(DType::F32) : given;
  const Array max = reduced(x, dim, cpu::ReduceKind::Max);
  const Array sum = reduced(unary(UnaryOp::Exp, binary(BinaryOp::Sub, x, finite_max(max), x.dtype())), dim,
                            cpu::ReduceKind::Sum);
  Dims both = max.sizes();
  both.insert(0, 2);
  const Array mine = Array::empty(both, x.dtype(), x.device());
  mine.slice(0, 0, 1).reshape(max.sizes()).copy_(max);
  mine.slice(0, 1, 1).reshape(max.sizes()).copy_(sum);
  const Array all = gather_over(spec, cutting_axes(spec, {dim}), mine);
  const Array maxima = all.slice(1, 0, 1).squeeze(1);
  const Array sums = all.slice(1, 1, 1).squeeze(1);
  const Array top = finite_max(reduced(maxima, 0, cpu::ReduceKind::Max).squeeze(0));
  const Array weights =
      unary(UnaryOp::Exp, binary(BinaryOp::Sub, maxima, top, x.dtype()));  // 0 for a part without elements
  const Array total =
      reduced(binary(BinaryOp::Mul, sums, weights, x.dtype()), 0, cpu::ReduceKind::Sum).squeeze(0);
  const Array shifted = binary(BinaryOp::Sub, x, top, x.dtype());
  const Array out = log ? binary(BinaryOp::Sub, shifted, unary(UnaryOp::Log, total), x.dtype())
                        : binary(BinaryOp::Div, unary(UnaryOp::Exp, shifted), total, x.dtype());
  return out.to(given.dtype());
}

const OpDef kBackward{"softmax_backward"};

Tensor fused_backward(const Tensor& dy, const Tensor& y, int dim, bool log) {
  const std::array<Tensor, 2> inputs{dy, y};
  const Dims& sizes = y.sizes();
  auto local = [&](LocalCall& l) {
    l.out[0] = Array::empty(l.in[1].sizes(), l.in[1].dtype(), l.in[1].device());
    kernels::softmax_backward(l.in[1].device(), {l.out[0], l.in[0], l.in[1], dim, log});
  };
  auto rule = [&] {
    Rule r = broadcast_rule(inputs, sizes, Linearity::First);
    r.inputs[0][static_cast<std::size_t>(dim)].whole = true;
    return r;
  };
  OpCall c;
  c.op = &kBackward;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(std::int64_t{dim}).add(std::int64_t{log});
  c.rule = rule;
  c.local = local;
  return call_one(c);
}

Tensor softmax_call(const OpDef& op, const Tensor& x, std::int64_t dim_given, bool log) {
  TS_CHECK(x.defined() && is_floating(x.dtype()), op.name, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  if (x.dim() == 0) {
    wrap_dim(op.name, dim_given, 0);
    return log ? affine(x, 0, 0) : affine(x, 0, 1);
  }
  const int dim = wrap_dim(op.name, dim_given, x.dim());
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    if (l.plan && cutting_axes(*l.in_spec(0), {dim}) != 0) {
      l.out[0] = softmax_over_ranks(in, *l.in_spec(0), dim, log);
      return;
    }
    l.out[0] = Array::empty(in.sizes(), in.dtype(), in.device());
    kernels::softmax(in.device(), {l.out[0], in, dim, log});
  };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, Linearity::None); };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor> out) -> GradFunction {
    return [name = op.name, dim, log, y = SavedTensor::output(out[0])](const BackwardContext&,
                                                                       const Tensors& g) {
      const Tensor y_ = y.unpack(name);
      const bool cut = y_.is_sharded() && y_.spec()->cut(dim);
      if (!grad_enabled() && !cut) return Tensors{fused_backward(g[0], y_, dim, log)};
      if (log) return Tensors{g[0] - exp(y_) * sum(g[0], {dim}, true)};
      return Tensors{y_ * (g[0] - sum(g[0] * y_, {dim}, true))};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(std::int64_t{dim});
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim) {
  static const OpDef op{"softmax"};
  return softmax_call(op, x, dim, false);
}

Tensor log_softmax(const Tensor& x, std::int64_t dim) {
  static const OpDef op{"log_softmax"};
  return softmax_call(op, x, dim, true);
}

}  // namespace tessera
