#include "ops/softmax/softmax.h"

#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/reduce/exp_sums.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

// The dim is cut: maxima and sums of all parts in one message, then every rank finishes its own elements.
Array softmax_over_ranks(const Array& given, const ShardSpec& spec, int dim, bool log) {
  const Array x = is_half(given.dtype()) ? given.to(DType::F32) : given;
  const ExpSums sums = exp_sums(x, &spec, {dim}, false);
  const Array shifted = array_binary(cpu::BinaryOp::Sub, x, sums.top);
  const Array out =
      log ? array_binary(cpu::BinaryOp::Sub, shifted, array_unary(cpu::UnaryOp::Log, sums.total))
          : array_binary(cpu::BinaryOp::Div, array_unary(cpu::UnaryOp::Exp, shifted), sums.total);
  return out.to(given.dtype());
}

const OpDef kBackward{"softmax_backward"};

Tensor fused_backward(const Tensor& dy, const Tensor& y, int dim, bool log) {
  const std::array<Tensor, 2> inputs{dy, y};
  const Dims& sizes = y.sizes();
  auto local = [&](LocalCall& l) {
    l.out[0] = empty_like(l.in[1], l.in[1].sizes(), l.in[1].dtype());
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
    return reshape(softmax_call(op, reshape(x, {1}), 0, log), {});
  }
  const int dim = wrap_dim(op.name, dim_given, x.dim());
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    if (l.plan && cutting_axes(*l.in_spec(0), {dim}) != 0) {
      l.out[0] = softmax_over_ranks(in, *l.in_spec(0), dim, log);
      return;
    }
    l.out[0] = empty_like(in, in.sizes(), in.dtype());
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

// The dim is checked before the cast sends anything.
Tensor cast_for(const OpDef& op, const Tensor& x, std::int64_t dim, DType dtype) {
  if (x.defined()) wrap_dim(op.name, dim, x.dim());
  return cast_to_floating(op.name, x, dtype);
}

}  // namespace

Tensor softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype) {
  static const OpDef op{"softmax"};
  return dtype ? softmax_call(op, cast_for(op, x, dim, *dtype), dim, false) : softmax_call(op, x, dim, false);
}

Tensor log_softmax(const Tensor& x, std::int64_t dim, std::optional<DType> dtype) {
  static const OpDef op{"log_softmax"};
  return dtype ? softmax_call(op, cast_for(op, x, dim, *dtype), dim, true) : softmax_call(op, x, dim, true);
}

}  // namespace tessera
