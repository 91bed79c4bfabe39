#include <limits>

#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/loss/likelihood.h"
#include "ops/loss/loss.h"
#include "ops/loss/loss_kernels.h"
#include "ops/loss/together.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

using cpu::PairLoss;
using cpu::PairPart;

struct PairCall {
  const OpDef* op = nullptr;
  cpu::PairLossKind kind = {};
  bool reduced = true;  // one number: scale · sum
  double scale = 1.0;
};

// y of the differences' losses may broadcast to x. The last two are of positive targets and of the losses, if
// there are any.
struct PairInputs {
  Tensor x, y, positive, weight;
};

// What lies in memory is refused by the rank that has it, as nothing is sent that could tell the others.
// Where nobody waits for that: what to add to the result, else undefined.
Array check_unit_range(const PairCall& pc, const LocalCall& l) {
  const Device device = l.in[0].device();
  const ShardSpec* spec = l.in_spec(0);
  const Array fault = Array::zeros({1}, DType::F64, device);
  kernels::unit_range(device, {fault, l.in[0], l.in[1]});
  const Array all = numbers_of_all(spec, refuse_together(spec) ? spec->shard_mask() : 0, fault);
  if (device == Device::Meta) return {};
  if (!refuses_values(device, spec)) return nan_if_any(all.reshape({all.numel()})).to(l.in[0].dtype());
  const Array told = all.to(Device::Cpu).contiguous();
  for (std::int64_t i = 0; i < told.numel(); ++i)
    TS_CHECK(told.data<double>()[i] == 0, pc.op->name, "needs {} between 0 and 1, given others",
             told.data<double>()[i] == 1 ? "inputs" : "targets");
  return {};
}

// In place.
void times(const Array& x, const Array& factor) {
  kernels::binary(x.device(), {x, x, factor.expand(x.sizes()), cpu::BinaryOp::Mul});
}

// The sum itself is not rounded to f16, whose numbers end at 65504.
Array sum_of_all(const Array& x, double scale) {
  Dims all;
  for (int d = 0; d < x.dim(); ++d) all.push_back(d);
  const Array sum = array_reduce(cpu::ReduceKind::Sum, x.dtype() == DType::F16 ? x.to(DType::F32) : x, all);
  array_unary_(cpu::UnaryOp::Affine, sum, scale);
  return sum.reshape({}).to(x.dtype());
}

void pair_forward(LocalCall& l, const PairCall& pc) {
  const Array& x = l.in[0];
  const Array fault = pc.kind.loss == PairLoss::Entropy ? check_unit_range(pc, l) : Array();
  const Array positive = l.in[2].defined() ? l.in[2].expand(x.sizes()) : Array();
  const bool weighted = l.in[3].defined();
  const bool sums = pc.reduced && !weighted;
  l.out[0] = sums ? Array::empty({}, x.dtype(), x.device()) : empty_like(x, x.sizes(), x.dtype());
  const cpu::PairLossArgs args{l.out[0], x,       l.in[1].expand(x.sizes()), positive,
                               {},       pc.kind, PairPart::Value,           weighted ? 1.0 : pc.scale};
  (sums ? kernels::pair_loss_sum : kernels::pair_loss)(x.device(), args);
  if (weighted) times(l.out[0], l.in[3]);
  if (weighted && pc.reduced) l.out[0] = sum_of_all(l.out[0], pc.scale);
  if (!fault.defined()) return;
  const Array marked = fault.reshape({}).expand(l.out[0].sizes());
  kernels::binary(x.device(), {l.out[0], l.out[0], marked, cpu::BinaryOp::Add});
}

// The rule of an element-wise op some of whose inputs may be absent.
Rule pair_rule(std::span<const Tensor> inputs, const Dims& out, Linearity linearity) {
  std::vector<Tensor> there;
  for (const Tensor& t : inputs)
    if (t.defined()) there.push_back(t);
  Rule r = broadcast_rule(there, out, linearity);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    if (!inputs[i].defined()) r.inputs.insert(r.inputs.begin() + static_cast<std::ptrdiff_t>(i), RuleTerm());
  return r;
}

// Gradients by x and y in one call, as far as they are needed. Undefined incoming gradients do not occur.
Tensors fused_backward(const BackwardContext& c, const Tensor& dy, const PairInputs& in, const PairCall& pc) {
  static const OpDef op{"pair_loss_backward"};
  const std::array<Tensor, 5> inputs{dy, in.x, in.y, in.positive, in.weight};
  const std::array<Dims, 2> sizes{in.x.sizes(), in.x.sizes()};
  auto local = [&](LocalCall& l) {
    const Array& x = l.in[1];
    const Array positive = l.in[3].defined() ? l.in[3].expand(x.sizes()) : Array();
    const Array y = l.in[2].expand(x.sizes());
    const Array factor = pc.reduced ? l.in[0] : Array();
    for (std::size_t i = 0; i < 2; ++i) {
      l.out[i] = empty_like(x, x.sizes(), x.dtype());
      if (!c.needs(i)) continue;
      kernels::pair_loss(x.device(), {l.out[i], x, y, positive, factor, pc.kind,
                                      i == 0 ? PairPart::ByInput : PairPart::ByTarget, pc.scale});
      if (!pc.reduced) times(l.out[i], l.in[0]);
      if (l.in[4].defined()) times(l.out[i], l.in[4]);
    }
  };
  auto rule = [&] {
    Rule r = pair_rule(inputs, in.x.sizes(), Linearity::First);
    r.outputs.push_back(r.outputs.front());
    return r;
  };
  OpCall call_args;
  call_args.op = &op;
  call_args.inputs = inputs;
  call_args.output_sizes = sizes;
  call_args.parameters = Hash().add(static_cast<std::int64_t>(pc.reduced));
  call_args.rule = rule;
  call_args.local = local;
  Tensors grads = call(call_args);
  for (std::size_t i = 0; i < 2; ++i)
    if (!c.needs(i)) grads[i] = Tensor();
  grads.resize(4);
  return grads;
}

Tensor slope_by_input(const PairInputs& in, const cpu::PairLossKind& kind) {
  const Tensor d = in.x - in.y;
  const double a = kind.alpha;
  switch (kind.loss) {
    case PairLoss::Square:
      return d * 2.0;
    case PairLoss::SmoothL1:
      return clamp(d / a, -1.0, 1.0);
    case PairLoss::Huber:
      return clamp(d, -a, a);
    case PairLoss::Entropy:
      return d / clamp((1.0 - in.x) * in.x, 1e-12, std::numeric_limits<double>::infinity());
    case PairLoss::LogitEntropy: {
      if (!in.positive.defined()) return sigmoid(in.x) - in.y;
      const Tensor weighted = in.positive * in.y;
      return (weighted + 1.0 - in.y) * sigmoid(in.x) - weighted;
    }
    case PairLoss::Likelihood:
    case PairLoss::Divergence:
      return neg(in.y);
    case PairLoss::LogDivergence:
      return neg(exp(in.y));
    default: {
      const Tensor zero = full_scalar(d, 0.0);
      return to(gt(d, zero), d.dtype()) - to(lt(d, zero), d.dtype());
    }
  }
}

Tensor slope_by_target(const PairInputs& in, const cpu::PairLossKind& kind) {
  switch (kind.loss) {
    case PairLoss::Likelihood:
      return neg(in.x);
    case PairLoss::Entropy:
      return log(1.0 - in.x) - log(in.x);
    case PairLoss::LogitEntropy:
      if (!in.positive.defined()) return neg(in.x);
      return in.positive * softplus(neg(in.x)) - softplus(in.x);
    case PairLoss::Divergence:
      return log(in.y) + 1.0 - in.x;
    case PairLoss::LogDivergence:
      return exp(in.y) * (in.y - in.x + 1.0);
    default:
      return neg(slope_by_input(in, kind));
  }
}

Tensors composed_backward(const BackwardContext& c, const Tensor& dy, const PairInputs& in,
                          const PairCall& pc) {
  const DType type = in.x.dtype();
  const DType acc = type == DType::F64 ? DType::F64 : DType::F32;
  const auto wide = [&](const Tensor& t) { return t.defined() ? to(t, acc) : t; };
  const PairInputs w{wide(in.x), wide(in.y), wide(in.positive), wide(in.weight)};
  Tensor g = wide(dy) * pc.scale;
  if (w.weight.defined()) g = g * w.weight;
  Tensors grads(4);
  if (c.needs(0)) grads[0] = to(g * slope_by_input(w, pc.kind), type);
  if (c.needs(1)) grads[1] = to(g * slope_by_target(w, pc.kind), type);
  return grads;
}

Tensor call_pair(const PairCall& pc, const PairInputs& in) {
  const std::array<Tensor, 4> inputs{in.x, in.y, in.positive, in.weight};
  const Dims sizes = pc.reduced ? Dims{} : in.x.sizes();
  auto local = [&](LocalCall& l) { pair_forward(l, pc); };
  auto rule = [&] {
    Rule r = pair_rule(inputs, in.x.sizes(), Linearity::None);
    if (pc.reduced) r.outputs.front().clear();
    return r;
  };
  auto gradient = [&](std::span<const Tensor> used, std::span<const Tensor>) -> GradFunction {
    return [pc, x = SavedTensor(used[0]), y = SavedTensor(used[1]), p = SavedTensor(used[2]),
            w = SavedTensor(used[3])](const BackwardContext& c, const Tensors& g) {
      const char* name = pc.op->name;
      const PairInputs saved{x.unpack(name), y.unpack(name), p.unpack(name), w.unpack(name)};
      Tensors grads =
          grad_enabled() ? composed_backward(c, g[0], saved, pc) : fused_backward(c, g[0], saved, pc);
      if (c.needs(1)) grads[1] = sum_to_size(grads[1], saved.y.sizes());
      return grads;
    };
  };
  OpCall c;
  c.op = pc.op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(static_cast<std::int64_t>(pc.reduced));
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

double divisor_of(Reduction reduction, const Tensor& x) {
  if (reduction == Reduction::Mean) return static_cast<double>(x.numel());
  if (reduction == Reduction::BatchMean && x.dim() > 0) return static_cast<double>(x.sizes()[0]);
  return 1.0;
}

// Checks, promotion and reduction, which are the same for all.
struct Pair {
  const OpDef& op;
  cpu::PairLossKind kind = {};
  Reduction reduction = Reduction::Mean;
  Tensor weight = {};    // of the losses
  Tensor positive = {};  // of positive targets

  Tensor operator()(const Tensor& x_given, const Tensor& y_given) const {
    TS_CHECK(x_given.defined() && y_given.defined(), op.name, "an input is undefined");
    check_together(op.name, {&x_given, &y_given, &weight, &positive});
    const bool divergence = kind.loss >= PairLoss::Divergence;
    const bool broadcasts = kind.loss <= PairLoss::Huber || divergence;  // where PyTorch takes it
    TS_CHECK(broadcasts || x_given.sizes() == y_given.sizes(), op.name,
             "prediction {} and target {} must have the same sizes", x_given.sizes().str(),
             y_given.sizes().str());
    TS_CHECK(reduction != Reduction::BatchMean || divergence, op.name,
             "the mean over the batch is a reduction of kl_div alone");
    const auto [x_own, y_own] = promoted(x_given, y_given);
    const Tensor x = stretched(x_own, y_own);
    const Tensor y = kind.loss <= PairLoss::Huber ? y_own : stretched(y_own, x_own);
    TS_CHECK(is_floating(x.dtype()), op.name, "needs floating tensors, given {}", name_of(x.dtype()));
    for (const Tensor* w : {&weight, &positive}) check_weight(*w, x);
    // The batch is the prediction's own.
    const double divisor = divisor_of(reduction, reduction == Reduction::BatchMean ? x_own : x);
    const double scale = divisor == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / divisor;
    const auto of_type = [&](const Tensor& t) { return t.defined() ? to(t, x.dtype()) : t; };
    const PairInputs in{x, y, of_type(positive), of_type(weight)};
    return call_pair({&op, kind, reduction != Reduction::None, reduction == Reduction::None ? 1.0 : scale},
                     in);
  }

 private:
  Tensor stretched(const Tensor& t, const Tensor& other) const {
    return t.sizes() == other.sizes() ? t : expand(t, broadcast_sizes(op.name, t.sizes(), other.sizes()));
  }
  void check_weight(const Tensor& w, const Tensor& x) const {
    if (!w.defined()) return;
    TS_CHECK(broadcast_sizes(op.name, w.sizes(), x.sizes()) == x.sizes(), op.name,
             "a weight of sizes {} does not broadcast to {}", w.sizes().str(), x.sizes().str());
    TS_CHECK(is_floating(w.dtype()), op.name, "weights must be floating, given {}", name_of(w.dtype()));
    TS_CHECK(!w.requires_grad(), op.name, "there is no gradient with respect to weights");
  }
};

}  // namespace

Tensor likelihood(const OpDef& op, const Tensor& log_p, const Tensor& target, const Tensor& weight,
                  std::optional<double> scale) {
  return call_pair({&op, {PairLoss::Likelihood}, scale.has_value(), scale.value_or(1.0)},
                   {log_p, target, Tensor(), weight});
}

Tensor mse_loss(const Tensor& x, const Tensor& y, Reduction reduction) {
  static const OpDef op{"mse_loss"};
  return Pair{op, {PairLoss::Square}, reduction}(x, y);
}

Tensor l1_loss(const Tensor& x, const Tensor& y, Reduction reduction) {
  static const OpDef op{"l1_loss"};
  return Pair{op, {PairLoss::Absolute}, reduction}(x, y);
}

Tensor smooth_l1_loss(const Tensor& x, const Tensor& y, Reduction reduction, double beta) {
  static const OpDef op{"smooth_l1_loss"};
  TS_CHECK(beta >= 0, op.name, "beta is {}, at least 0 is needed", beta);
  if (beta == 0) return Pair{op, {PairLoss::Absolute}, reduction}(x, y);
  return Pair{op, {PairLoss::SmoothL1, beta}, reduction}(x, y);
}

Tensor huber_loss(const Tensor& x, const Tensor& y, Reduction reduction, double delta) {
  static const OpDef op{"huber_loss"};
  TS_CHECK(delta > 0, op.name, "delta is {}, a positive number is needed", delta);
  return Pair{op, {PairLoss::Huber, delta}, reduction}(x, y);
}

Tensor binary_cross_entropy(const Tensor& x, const Tensor& y, const Tensor& weight, Reduction reduction) {
  static const OpDef op{"binary_cross_entropy"};
  return Pair{op, {PairLoss::Entropy}, reduction, weight}(x, y);
}

Tensor binary_cross_entropy_with_logits(const Tensor& x, const Tensor& y, const Tensor& weight,
                                        Reduction reduction, const Tensor& pos_weight) {
  static const OpDef op{"binary_cross_entropy_with_logits"};
  return Pair{op, {PairLoss::LogitEntropy}, reduction, weight, pos_weight}(x, y);
}

Tensor kl_div(const Tensor& x, const Tensor& y, Reduction reduction, bool log_target) {
  static const OpDef op{"kl_div"};
  return Pair{op, {log_target ? PairLoss::LogDivergence : PairLoss::Divergence}, reduction}(x, y);
}

}  // namespace tessera
