#include "ops/reduce/reduce.h"

#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/reduce/groups.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

using cpu::ReduceKind;

std::size_t dims_hash(const Dims& dims, bool keepdim) {
  return Hash().add(dims).add(static_cast<std::int64_t>(keepdim));
}

Rule reduction_rule(const Dims& sizes, const Dims& dims, bool keepdim) {
  Rule rule;
  RuleTerm in;
  RuleTerm out;
  for (int d = 0; d < sizes.size(); ++d) {
    const RuleDim t{static_cast<char>('a' + d), false, false};
    const bool reduced = std::find(dims.begin(), dims.end(), d) != dims.end();
    in.push_back(t);
    if (!reduced) out.push_back(t);
    if (reduced && keepdim) out.push_back({});
  }
  rule.inputs = {in};
  rule.outputs = {out};
  return rule;
}

struct Reduction {
  const OpDef* op = nullptr;
  ReduceKind kind = ReduceKind::Sum;
  ReduceOp partial = ReduceOp::Sum;
};

using ReduceGradient = FunctionRef<GradFunction(const Tensor& x, const Tensor& y)>;

Tensor reduce(const Reduction& r, const Tensor& x, const Dims& dims, bool keepdim, ReduceGradient gradient) {
  const Dims sizes = reduced_sizes(x.sizes(), dims, keepdim);
  const Dims& whole = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    const Dims kept = reduced_sizes(in.sizes(), dims, true);
    const bool counts = r.kind == ReduceKind::Sum && (in.dtype() == DType::Bool || in.dtype() == DType::I32);
    const Array out = Array::empty(kept, counts ? DType::I64 : in.dtype(), in.device());
    kernels::reduce(in.device(), {out, in, r.kind});
    l.out[0] = out.reshape(reduced_sizes(in.sizes(), dims, keepdim));
  };
  auto rule = [&] {
    Rule made = reduction_rule(whole, dims, keepdim);
    made.missing = r.partial;
    if (r.kind == ReduceKind::Sum) made.linearity = Linearity::Each;
    return made;
  };
  auto make_gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) {
    return gradient(in[0], out[0]);
  };
  OpCall c;
  c.op = r.op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = dims_hash(dims, keepdim);
  c.rule = rule;
  c.local = local;
  c.gradient = make_gradient;
  return call_one(c);
}

Tensor kept_dims(const Tensor& t, const Dims& sizes, const Dims& dims) {
  return reshape(t, reduced_sizes(sizes, dims, true));
}

Tensor extremum(const Reduction& r, const Tensor& x, const Dims& given, bool keepdim) {
  TS_CHECK(x.defined(), r.op->name, "the input is undefined");
  const Dims dims = reduction_dims(r.op->name, given, x.dim());
  for (std::int64_t d : dims)
    TS_CHECK(x.sizes()[static_cast<int>(d)] > 0, r.op->name,
             "dim {} of {} is empty; there is no extremum over nothing", d, x.sizes().str());
  return reduce(r, x, dims, keepdim, [&](const Tensor& in, const Tensor& out) -> GradFunction {
    return [name = r.op->name, dims, x = SavedTensor(in), y = SavedTensor::output(out)](
               const BackwardContext&, const Tensors& g) {
      const Tensor in_ = x.unpack(name);
      const Tensor best = kept_dims(y.unpack(name), in_.sizes(), dims);
      const Tensor ties = to(eq(in_, best), in_.dtype());
      const Tensor share = kept_dims(g[0], in_.sizes(), dims) / sum(ties, dims, true);
      return Tensors{ties * share};
    };
  });
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& given, bool keepdim) {
  static const OpDef op{"sum"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (x.dtype() == DType::Bool && x.is_sharded() && x.spec()->has_partial())
    return sum(to(x, DType::I64), given, keepdim);  // owed bools are or-ed, which must come before counting
  const Dims dims = reduction_dims(op.name, given, x.dim());
  return reduce({&op, ReduceKind::Sum, ReduceOp::Sum}, x, dims, keepdim,
                [&](const Tensor& in, const Tensor&) -> GradFunction {
                  return [dims, sizes = in.sizes()](const BackwardContext&, const Tensors& g) {
                    return Tensors{expand(kept_dims(g[0], sizes, dims), sizes)};
                  };
                });
}

Tensor mean(const Tensor& x, const Dims& given, bool keepdim) {
  TS_CHECK(x.defined() && is_floating(x.dtype()), "mean", "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  const Dims dims = reduction_dims("mean", given, x.dim());
  double n = 1;
  for (std::int64_t d : dims) n *= static_cast<double>(x.sizes()[static_cast<int>(d)]);
  const double scale = n == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / n;
  return affine(sum(x, dims, keepdim), scale, 0.0);
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"amax"};
  return extremum({&op, ReduceKind::Max, ReduceOp::Max}, x, dims, keepdim);
}

Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"amin"};
  return extremum({&op, ReduceKind::Min, ReduceOp::Min}, x, dims, keepdim);
}

namespace {

struct VarSetup {
  Dims dims;
  double count = 1;
  double correction = 1;
  bool keepdim = false;
};

Strategy var_plan(const std::vector<SpecPtr>& in, const VarSetup& s) {
  const SpecPtr x = without_partial(*in[0]);
  const SpecPtr out = reduced_spec(*x, s.dims, s.keepdim);
  return {{x}, {out, out}, 0};
}

void var_local(LocalCall& l, const VarSetup& s) {
  const Array& x = l.in[0];
  Moments m = global_moments(x, l.in_spec(0), s.dims);
  const double divisor = s.count - s.correction;
  const double inf = std::numeric_limits<double>::infinity();
  const double scale = divisor > 0 ? 1.0 / divisor : inf;
  const Array variance = Array::empty(m.m2.sizes(), m.m2.dtype(), x.device());
  // Without degrees of freedom 0/0 is NaN and anything else infinite, as in PyTorch.
  kernels::unary(x.device(), {variance, m.m2, cpu::UnaryOp::Affine, scale, 0.0});
  if (s.count == 0) m.mean.fill_(std::numeric_limits<double>::quiet_NaN());
  const Dims sizes = reduced_sizes(x.sizes(), s.dims, s.keepdim);
  l.out[0] = variance.to(x.dtype()).reshape(sizes);
  l.out[1] = m.mean.to(x.dtype()).reshape(sizes);
}

}  // namespace

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& given, double correction, bool keepdim) {
  static const OpDef op{"var"};
  TS_CHECK(x.defined() && is_floating(x.dtype()), op.name, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  VarSetup s{reduction_dims(op.name, given, x.dim()), 1, correction, keepdim};
  for (std::int64_t d : s.dims) s.count *= static_cast<double>(x.sizes()[static_cast<int>(d)]);
  const std::array<Dims, 2> sizes{reduced_sizes(x.sizes(), s.dims, keepdim),
                                  reduced_sizes(x.sizes(), s.dims, keepdim)};
  auto local = [&](LocalCall& l) { var_local(l, s); };
  auto plan = [&](const std::vector<SpecPtr>& in) { return var_plan(in, s); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [s, x_ = SavedTensor(in[0])](const BackwardContext&, const Tensors& g) {
      const Tensor in_ = x_.unpack("var");
      Tensor dx;
      if (g[0].defined()) {
        const Tensor centred = in_ - mean(in_, s.dims, true);
        dx = centred * affine(kept_dims(g[0], in_.sizes(), s.dims), 2.0 / (s.count - s.correction), 0.0);
      }
      if (g[1].defined()) {
        const Tensor from_mean =
            expand(affine(kept_dims(g[1], in_.sizes(), s.dims), 1.0 / s.count, 0.0), in_.sizes());
        dx = dx.defined() ? dx + from_mean : from_mean;
      }
      return Tensors{dx};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = dims_hash(s.dims, keepdim);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  Tensors out = call(c);
  return {out[0], out[1]};
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return var_mean(x, dims, correction, keepdim).first;
}

Tensor sum_to_size(const Tensor& x, const Dims& sizes) {
  if (x.sizes() == sizes) return x;
  Dims dims;
  const int lead = x.dim() - sizes.size();
  TS_CHECK(lead >= 0, "sum_to_size", "{} cannot be summed to {}", x.sizes().str(), sizes.str());
  for (int d = 0; d < x.dim(); ++d) {
    const bool broadcast = d < lead || (sizes[d - lead] == 1 && x.sizes()[d] != 1);
    TS_CHECK(broadcast || sizes[d - lead] == x.sizes()[d], "sum_to_size", "{} cannot be summed to {}",
             x.sizes().str(), sizes.str());
    if (broadcast) dims.push_back(d);
  }
  return reshape(sum(x, dims, true), sizes);
}

}  // namespace tessera
