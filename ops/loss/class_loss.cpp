#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/indexing/indexing.h"
#include "ops/kernels.h"
#include "ops/loss/likelihood.h"
#include "ops/loss/loss.h"
#include "ops/loss/loss_kernels.h"
#include "ops/loss/together.h"
#include "ops/memory_order.h"
#include "ops/random/random.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/layout_ops.h"
#include "ops/shape/shape_ops.h"
#include "ops/softmax/softmax.h"

namespace tessera {
namespace {

struct ClassCall {
  const OpDef* op = nullptr;
  cpu::ClassLossKind kind = {};
  Reduction reduction = Reduction::Mean;
  bool each() const { return reduction == Reduction::None; }
};

// Worked out by each rank alone, and cached.
struct ClassPlan {
  unsigned class_axes = 0;         // cut the classes
  unsigned position_axes = 0;      // cut the positions
  Intervals classes;               // that this rank has, where they are cut
  std::vector<std::int64_t> here;  // position of every class on this rank, or -1; empty: all are here
};

ClassPlan class_plan(const ShardSpec& x) {
  ClassPlan p;
  p.class_axes = cutting_axes(x, {1});
  p.position_axes = x.shard_mask() & ~p.class_axes;
  if (p.class_axes == 0) return p;
  p.classes = x.intervals(1);
  p.here.assign(static_cast<std::size_t>(x.sizes()[1]), -1);
  std::int64_t at = 0;
  for (const Interval i : p.classes)
    for (std::int64_t c = i.lo; c < i.hi; ++c) p.here[static_cast<std::size_t>(c)] = at++;
  return p;
}

Dims without_classes(const Dims& x) {
  Dims sizes = x;
  sizes.erase(1);
  return sizes;
}

// x, and what has its positions: the target, and in backward more.
Rule class_rule(const Dims& x, int followers) {
  RuleTerm all;
  RuleTerm positions;
  for (int d = 0; d < x.size(); ++d) {
    all.push_back({static_cast<char>('a' + d), false, false});
    if (d != 1) positions.push_back(all.back());
  }
  Rule r;
  r.inputs = {all};
  for (int i = 0; i < followers; ++i) r.inputs.push_back(positions);
  r.outputs = {all};
  return r;
}

SpecPtr owed_number(const SpecPtr& number, unsigned axes) {
  Placements placements = number->placements();
  for (std::size_t a = 0; a < placements.size(); ++a)
    if ((axes >> a & 1U) != 0) placements[a] = Partial();
  return with_placements(*number, placements);
}

// Inputs: x, target, weight (whole). Outputs: loss, lse per position, total weight (one number).
Strategy forward_plan(const std::vector<SpecPtr>& in, const ClassCall& cc) {
  Rule rule = class_rule(in[0]->sizes(), 1);
  Strategy s = resolve({&rule, {in[0], in[1]}, {in[0]->sizes()}, {}});
  const ShardSpec& x = *s.inputs[0];
  const SpecPtr positions = reduced_spec(x, {1}, false);
  const SpecPtr number = ShardSpec::replicated(x.mesh(), {});
  auto plan = std::make_shared<ClassPlan>(class_plan(x));
  s.inputs.push_back(in[2] ? ShardSpec::replicated(x.mesh(), in[2]->sizes()) : nullptr);
  s.outputs = {cc.each() ? positions : number, positions, number};
  if (cc.reduction == Reduction::Sum) s.outputs[0] = owed_number(number, plan->position_axes);
  s.extra = std::move(plan);
  return s;
}

// Inputs: dy, x, target, lse, total weight, weight. Everything follows x, and x what dy is cut by.
Strategy backward_plan(const std::vector<SpecPtr>& in, const ClassCall& cc) {
  SpecPtr x = in[1];
  for (int d = 0; cc.each() && d < in[0]->dim(); ++d) x = cut_along(x, d == 0 ? 0 : d + 1, *in[0], d);
  const SpecPtr positions = reduced_spec(*x, {1}, false);
  const SpecPtr number = ShardSpec::replicated(x->mesh(), {});
  Strategy s{{cc.each() ? positions : number, x, positions, positions, number}, {x}, 0};
  s.inputs.push_back(in[5] ? ShardSpec::replicated(x->mesh(), in[5]->sizes()) : nullptr);
  s.extra = std::make_shared<ClassPlan>(class_plan(*x));
  return s;
}

// Below as many classes, rows of them are so short that turning the array round costs less.
constexpr std::int64_t kLongRow = 16;

Dims classes_last(int dims) {
  Dims order{0};
  for (int d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}
// Whether the classes of a position lie side by side, and are read as they lie.
bool classes_innermost(const Array& x) {
  return x.device() == Device::Cpu && x.dim() > 2 && x.size(1) >= kLongRow && !x.is_contiguous() &&
         x.permute(classes_last(x.dim())).is_contiguous();
}

// [N, C, S]; of classes that lie innermost [N S, C, 1], which has its positions in the same order.
Array as_rows(const Array& x) {
  std::int64_t space = 1;
  for (int d = 2; d < x.dim(); ++d) space *= x.size(d);
  if (classes_innermost(x))
    return x.permute(classes_last(x.dim())).reshape({x.size(0) * space, x.size(1), 1});
  return x.contiguous().reshape({x.size(0), x.size(1), space});
}

// The weights of the classes that a rank has, in its order.
Array weights_here(const Array& weight, const ClassPlan& plan, std::int64_t count) {
  if (!weight.defined() || plan.here.empty()) return weight;
  Array own = Array::empty({count}, weight.dtype(), weight.device());
  std::int64_t at = 0;
  for (const Interval i : plan.classes) {
    own.slice(0, at, i.length()).copy_(weight.slice(0, i.lo, i.length()));
    at += i.length();
  }
  return own;
}

cpu::ClassData data_of(const ClassCall& cc, const ClassPlan& plan, const Array& x, const Array& target,
                       const Array& weight) {
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  cpu::ClassData d;
  d.x = as_rows(x);
  d.target = target.contiguous();
  if (weight.defined()) d.weight = weight.to(acc).contiguous();
  d.weight_here = weights_here(d.weight, plan, d.x.size(1));
  d.here = plan.here;
  d.kind = cc.kind;
  return d;
}

const ClassPlan& plan_of(const LocalCall& l) {
  static const ClassPlan plain;
  return l.plan ? *static_cast<const ClassPlan*>(l.plan->extra.get()) : plain;
}

// Refuses a target that is no class: of any rank whose sums are among [P, 4].
void refuse_bad_targets(const Array& sums, const ClassCall& cc) {
  for (std::int64_t r = 0; r < sums.size(0); ++r)
    TS_CHECK(sums.at(4 * r) == 0, cc.op->name, "target {} is out of range for {} classes",
             static_cast<std::int64_t>(sums.at(4 * r + 1)), cc.kind.classes);
}

// The loss and what it was divided by. Where nobody has waited for the device, a target that is no class
// leaves NaN.
void finish(LocalCall& l, const Array& sums, const Array& losses, const ClassCall& cc) {
  const Array& x = l.in[0];
  l.out[0] = cc.each() ? losses : Array::empty({}, x.dtype(), x.device());
  l.out[2] = Array::empty({}, DType::F64, x.device());
  kernels::class_total(x.device(), {l.out[0], l.out[2], sums, cc.reduction == Reduction::Mean, cc.each()});
}

void forward(LocalCall& l, const ClassCall& cc) {
  const Array& x = l.in[0];
  const ClassPlan& plan = plan_of(l);
  const cpu::ClassData data = data_of(cc, plan, x, l.in[1], l.in[2]);
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Dims rows{data.x.size(0), data.x.size(2)};
  const Array terms = Array::empty({cc.kind.terms(), rows[0], rows[1]}, acc, x.device());
  kernels::class_rows(x.device(), {terms, data});
  const Array parts = numbers_of_all(l.in_spec(0), plan.class_axes, terms);
  const Dims positions = without_classes(x.sizes());
  const Array losses = cc.each() ? Array::empty(positions, x.dtype(), x.device()) : Array();
  const Array sums = Array::empty({4}, DType::F64, x.device());
  l.out[1] = Array::empty(positions, acc, x.device());
  kernels::class_loss(x.device(), {losses, l.out[1], sums, parts, data});
  // A mean needs what the others have, and all refuse a bad target; else it is refused where it is.
  const ShardSpec* spec = l.in_spec(0);
  const bool mean = cc.reduction == Reduction::Mean;
  const Array own = sums.unsqueeze(0);
  const Array all = mean || refuse_together(spec) ? numbers_of_all(spec, plan.position_axes, sums) : own;
  if (x.device() != Device::Meta && refuses_values(x.device(), spec)) refuse_bad_targets(all, cc);
  finish(l, mean ? all : own, losses, cc);
}

struct ClassSaved {
  SavedTensor x, target, weight;
  Tensor lse, total;
};

Tensors fused_backward(const Tensor& dy, const ClassSaved& saved, const ClassCall& cc) {
  static const OpDef op{"class_loss_backward"};
  const char* name = cc.op->name;
  const std::array<Tensor, 6> inputs{dy,        saved.x.unpack(name), saved.target.unpack(name),
                                     saved.lse, saved.total,          saved.weight.unpack(name)};
  const Dims& sizes = inputs[1].sizes();
  auto local = [&](LocalCall& l) {
    const Array& x = l.in[1];
    const cpu::ClassData data = data_of(cc, plan_of(l), x, l.in[2], l.in[5]);
    const bool in_place = classes_innermost(x);
    const Array dx = in_place ? empty_like(x, x.sizes()) : Array::empty(x.sizes(), x.dtype(), x.device());
    kernels::class_loss_gradient(x.device(),
                                 {as_rows(dx), l.in[0].contiguous(), l.in[3].contiguous(), l.in[4], data});
    l.out[0] = dx;
    if (!in_place && !x.is_contiguous() && x.device() == Device::Cpu)
      (l.out[0] = empty_like(x, x.sizes())).copy_(dx);  // in the order of the logits
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return backward_plan(in, cc); };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(static_cast<std::int64_t>(cc.each()));
  c.plan = plan;
  c.local = local;
  return {call_one(c), Tensor(), Tensor()};
}

// The formula of ops/cpu/class_loss.h written with ops.
Tensors composed_backward(const Tensor& dy, const ClassSaved& saved, const ClassCall& cc) {
  const char* name = cc.op->name;
  const Tensor given = saved.x.unpack(name);
  const Tensor target = saved.target.unpack(name);
  const Tensor weight = saved.weight.unpack(name);
  const DType acc = saved.lse.dtype();
  const Tensor x = to(given, acc);
  const double smoothing = cc.kind.smoothing;
  const Tensor counted =
      ne(target, Tensor(Array::full({}, static_cast<double>(cc.kind.ignore), DType::I64, x.device())));
  const Tensor number = where(counted, target, Tensor(Array::zeros({}, DType::I64, x.device())));
  Tensor own = to(counted, acc);
  if (weight.defined()) own = own * squeeze(embedding(unsqueeze(to(weight, acc), 1), number), -1);
  const Tensor g = to(dy, acc) / to(saved.total, acc);
  Dims last_to_second;  // [N, positions…, C] -> [N, C, positions…]
  for (int d = 0; d < x.dim(); ++d) last_to_second.push_back(d == 1 ? x.dim() - 1 : d == 0 ? 0 : d - 1);
  const Tensor is_target = to(permute(one_hot(number, cc.kind.classes), last_to_second), acc);
  // Nothing for a target that does not count, also where g is infinite because none does.
  const auto where_counted = [&](const Tensor& t) {
    return unsqueeze(where(counted, t, Tensor(Array::zeros({}, acc, x.device()))), 1);
  };
  const Tensor at_target = where_counted(g * own * (1.0 - smoothing));
  if (!cc.kind.logits) return {to(neg(is_target * at_target), given.dtype()), Tensor(), Tensor()};
  Tensor dx = (softmax(x, 1) - is_target) * at_target;
  if (smoothing > 0) {
    Dims beside = Dims::filled(x.dim(), 1);
    beside[1] = cc.kind.classes;
    const Tensor w = weight.defined() ? reshape(to(weight, acc), beside)
                                      : Tensor(Array::full(beside, 1.0, acc, x.device()));
    const Tensor share = where_counted(g * (smoothing / static_cast<double>(cc.kind.classes)));
    dx = dx + (softmax(x, 1) * sum(w) - w) * share;
  }
  return {to(dx, given.dtype()), Tensor(), Tensor()};
}

Tensor call_class(const ClassCall& cc, const Tensor& x, const Tensor& target, const Tensor& weight) {
  const std::array<Tensor, 3> inputs{x, target, weight};
  const Dims positions = without_classes(x.sizes());
  const std::array<Dims, 3> sizes{cc.each() ? positions : Dims{}, positions, Dims{}};
  auto plan = [&](const std::vector<SpecPtr>& in) { return forward_plan(in, cc); };
  auto local = [&](LocalCall& l) { forward(l, cc); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    ClassSaved saved{SavedTensor(in[0]), SavedTensor(in[1]), SavedTensor(in[2]), out[1].detach(),
                     out[2].detach()};
    return [cc, saved](const BackwardContext&, const Tensors& g) {
      return grad_enabled() ? composed_backward(g[0], saved, cc) : fused_backward(g[0], saved, cc);
    };
  };
  OpCall c;
  c.op = cc.op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  c.parameters = Hash().add(static_cast<std::int64_t>(cc.reduction));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call(c)[0];
}

void check(const char* op, const Tensor& x, const Tensor& target, const Tensor& weight,
           const ClassLossOptions& options) {
  TS_CHECK(x.defined() && is_floating(x.dtype()) && x.dim() >= 1, op,
           "needs a floating tensor [N, C, ...] or [C], given {}", given_str(x));
  TS_CHECK(target.defined(), op, "the target is undefined");
  const std::int64_t classes = x.sizes()[x.dim() == 1 ? 0 : 1];
  TS_CHECK(!weight.defined() || (weight.sizes() == Dims{classes} && weight.dtype() == x.dtype()), op,
           "the weight must have one {} for each of {} classes, given {} {}", name_of(x.dtype()), classes,
           weight.sizes().str(), name_of(weight.dtype()));
  TS_CHECK(!weight.defined() || !weight.requires_grad(), op, "there is no gradient with respect to weights");
  TS_CHECK(options.label_smoothing >= 0 && options.label_smoothing <= 1, op,
           "label_smoothing is {}, 0 to 1 are allowed", options.label_smoothing);
  TS_CHECK(options.reduction != Reduction::BatchMean, op,
           "the mean over the batch is a reduction of kl_div alone");
}

Tensor by_number(const OpDef& op, const Tensor& x, const Tensor& target, const Tensor& weight,
                 const ClassCall& cc) {
  TS_CHECK(target.dtype() == DType::I64, op.name, "class numbers must be i64, given {}",
           name_of(target.dtype()));
  const Dims wanted = x.dim() == 1 ? Dims{} : without_classes(x.sizes());
  TS_CHECK(target.sizes() == wanted, op.name, "the target must have sizes {} for an input {}, given {}",
           wanted.str(), x.sizes().str(), target.sizes().str());
  if (x.dim() > 1) return call_class(cc, x, target, weight);
  const Tensor loss = call_class(cc, unsqueeze(x, 0), unsqueeze(target, 0), weight);
  return cc.each() ? squeeze(loss, 0) : loss;
}

// Against probabilities of the classes: -Σ_c w_c t_c log p_c, the mean over positions.
Tensor by_probability(const OpDef& op, const Tensor& x, const Tensor& target, const Tensor& weight,
                      const ClassLossOptions& options) {
  const int dim = x.dim() == 1 ? 0 : 1;
  const std::int64_t classes = x.sizes()[dim];
  Tensor t = to(target, x.dtype());
  if (options.label_smoothing > 0)
    t = affine(t, 1.0 - options.label_smoothing, options.label_smoothing / static_cast<double>(classes));
  Dims beside = Dims::filled(x.dim(), 1);
  beside[dim] = classes;
  const Tensor w = weight.defined() ? reshape(weight, beside) : Tensor();
  const Tensor log_p = log_softmax(x, dim);
  if (options.reduction == Reduction::None) return sum(likelihood(op, log_p, t, w, {}), {dim});
  const double positions = static_cast<double>(x.numel()) / static_cast<double>(classes);
  return likelihood(op, log_p, t, w, options.reduction == Reduction::Mean ? 1.0 / positions : 1.0);
}

ClassCall call_of(const OpDef& op, const Tensor& x, const ClassLossOptions& options) {
  ClassCall cc;
  cc.op = &op;
  cc.kind.classes = x.sizes()[x.dim() == 1 ? 0 : 1];
  cc.kind.ignore = options.ignore_index;
  cc.reduction = options.reduction;
  return cc;
}

}  // namespace

Tensor cross_entropy(const Tensor& x, const Tensor& target, const Tensor& weight,
                     const ClassLossOptions& options) {
  static const OpDef op{"cross_entropy"};
  check(op.name, x, target, weight, options);
  if (is_floating(target.dtype()) && target.sizes() == x.sizes())
    return by_probability(op, x, target, weight, options);
  ClassCall cc = call_of(op, x, options);
  cc.kind.smoothing = options.label_smoothing;
  return by_number(op, x, target, weight, cc);
}

Tensor nll_loss(const Tensor& x, const Tensor& target, const Tensor& weight,
                const ClassLossOptions& options) {
  static const OpDef op{"nll_loss"};
  check(op.name, x, target, weight, options);
  TS_CHECK(options.label_smoothing == 0, op.name, "label_smoothing is {}, an option of cross_entropy alone",
           options.label_smoothing);
  ClassCall cc = call_of(op, x, options);
  cc.kind.logits = false;
  return by_number(op, x, target, weight, cc);
}

}  // namespace tessera
