// Reductions that need numbers of every part at once: variance, logarithms of sums, norms. Those numbers
// travel in one message, not the data.
#include <array>
#include <cmath>
#include <limits>

#include "ops/cpu/power_sums.h"
#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/reduce/exp_sums.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/reduction_backward.h"
#include "ops/shape/shape_ops.h"

namespace tessera {

Kernel<void(const cpu::PowerSumsArgs&)> kernels::power_sums{"power_sums", &cpu::power_sums};
namespace {

using cpu::BinaryOp;
using cpu::ReduceKind;
using cpu::UnaryOp;

struct VarSetup {
  Dims dims;
  double count = 1;
  double correction = 1;
  bool keepdim = false;
  bool dims_given = false;

  double freedom() const { return count - correction; }
};
VarSetup var_setup(const char* op, const Tensor& x, const Dims& given, double correction, bool keepdim) {
  VarSetup s{reduction_dims(op, given, x.dim()), 1, correction, keepdim, !given.empty() && x.dim() > 0};
  s.count = reduced_count(x.sizes(), s.dims);
  return s;
}

Strategy var_plan(const std::vector<SpecPtr>& in, const VarSetup& s) {
  const SpecPtr x = without_partial(*in[0]);
  const SpecPtr out = reduced_spec(*x, s.dims, s.keepdim);
  return {{x}, {out, out}, 0};
}

// Mean and sum of squared deviations of the rows of the global tensor, in double. What travels is as wide as
// the data: the mean in two terms, so that it keeps its digits far from zero, and the root of the deviations,
// which overflows only where the data do.
struct Spread {
  Array mean;
  Array m2;
};

// `other` where x is NaN, which is what differences of infinities come to.
Array unless_nan(const Array& x, const Array& other) {
  const Array lost = Array::empty(x.sizes(), DType::Bool, x.device());
  kernels::binary(x.device(), {lost, x, x, BinaryOp::Ne});
  const Array out = Array::empty(x.sizes(), x.dtype(), x.device());
  kernels::where(x.device(), {out, lost, other.expand(x.sizes()), x});
  return out;
}

Spread global_spread(const Array& x, const ShardSpec* spec, const Dims& dims) {
  const Dims sizes = reduced_sizes(x.sizes(), dims, true);
  const auto empty = [&] { return Array::empty(sizes, DType::F64, x.device()); };
  const Spread own{empty(), empty()};
  kernels::moments(x.device(), {own.mean, own.m2, x});
  const unsigned mask = spec == nullptr ? 0 : cutting_axes(*spec, dims);
  if (mask == 0) return own;

  const Dims rows{1,
                  numel_of(sizes)};  // as one dim: parts and terms are dims too, and x may have all there are
  const Array terms =
      Array::empty({3, rows[1]}, x.dtype() == DType::F64 ? DType::F64 : DType::F32, x.device());
  const auto term = [&](const Array& of, std::int64_t i) { return of.slice(of.dim() - 2, i, 1); };
  const auto put = [&](std::int64_t i, const Array& value) { term(terms, i).copy_(value.reshape(rows)); };
  put(0, own.mean);
  const Array rest = array_binary(BinaryOp::Sub, own.mean, term(terms, 0).to(DType::F64).reshape(sizes));
  put(1, unless_nan(rest, Array::zeros({}, DType::F64, x.device())));
  put(2, array_unary(UnaryOp::Sqrt, own.m2));
  const Array all = gather_over(*spec, mask, terms).to(DType::F64);

  std::vector<double> counts;
  double total = 0;
  std::int64_t first = 0;  // part that is not empty
  for (int r : group_ranks(*spec, mask)) {
    counts.push_back(reduced_count(spec->local_sizes(r), dims));
    if (total == 0) first = std::ssize(counts) - 1;
    total += counts.back();
  }
  Dims per_part = Dims::filled(all.dim() - 1, 1);
  per_part[0] = std::ssize(counts);
  const Array count = Array::from(counts, per_part, DType::F64).to(all.device());
  const Array means = array_binary(BinaryOp::Add, term(all, 0).squeeze(1), term(all, 1).squeeze(1));
  const Array origin = means.slice(0, first, 1);
  const auto times = [&](const Array& a, const Array& b) { return array_binary(BinaryOp::Mul, a, b); };
  const auto summed = [](const Array& a) { return array_reduce(ReduceKind::Sum, a, {0}); };
  // Σ count (mean − origin) / total, exactly 0 where all parts have one mean.
  const Array away = summed(times(array_binary(BinaryOp::Sub, means, origin), count));
  const auto over_all = [&](const Array& a) {
    return array_unary(UnaryOp::Affine, a, total == 0 ? 0.0 : 1.0 / total);
  };
  const Array mean =
      unless_nan(array_binary(BinaryOp::Add, origin, over_all(away)), over_all(summed(times(means, count))));
  const Array apart = array_unary(UnaryOp::Square, array_binary(BinaryOp::Sub, means, mean));
  const Array within = array_unary(UnaryOp::Square, term(all, 2).squeeze(1));
  const Array m2 = summed(array_binary(BinaryOp::Add, within, times(apart, count)));
  return {mean.reshape(sizes), m2.reshape(sizes)};
}

// In the place of the deviations. Without degrees of freedom 0/0 is NaN and anything else infinite, as in
// PyTorch.
const Array& variance_of(const Spread& s, const VarSetup& setup) {
  array_unary_(UnaryOp::Affine, s.m2,
               setup.freedom() > 0 ? 1.0 / setup.freedom() : std::numeric_limits<double>::infinity());
  return s.m2;
}

// Returns the mean.
Array var_local(LocalCall& l, const VarSetup& s) {
  const Array& x = l.in[0];
  const Spread spread = global_spread(x, l.in_spec(0), s.dims);
  if (s.count == 0) spread.mean.fill_(std::numeric_limits<double>::quiet_NaN());
  const Dims sizes = reduced_sizes(x.sizes(), s.dims, s.keepdim);
  l.out[0] = variance_of(spread, s).to(x.dtype()).reshape(sizes);
  l.out[1] = spread.mean.to(x.dtype()).reshape(sizes);
  return spread.mean;
}

// dy / y where y is not 0, else 0; also when it is differentiated once more.
Tensor over_nonzero(const Tensor& dy, const Tensor& y) {
  const Tensor zero = full_scalar(y, 0.0);
  const Tensor is_zero = eq(y, zero);
  const Tensor divisor = grad_enabled() ? where(is_zero, full_scalar(y, 1.0), y) : y;
  return where(is_zero, zero, dy / divisor);
}

// `t`, a constant, and 0 where it is not finite.
Tensor finite_or_zero(const Tensor& t) {
  const Array& x = t.local();
  const Array finite = Array::empty(x.sizes(), DType::Bool, x.device());
  kernels::unary(x.device(), {finite, x, UnaryOp::IsFinite});
  const Array values = Array::empty(x.sizes(), x.dtype(), x.device());
  kernels::where(x.device(),
                 {values, finite, x, Array::full({}, 0.0, x.dtype(), x.device()).expand(x.sizes())});
  return t.is_sharded() ? Tensor(values, t.spec()) : Tensor(values);
}

// `factor` times dy times the slope of the variance of x. Differences are taken from `near`, a number near
// the mean for each result, all finite: far from zero the mean itself would be rounded to what x can hold.
// Where no dims are given and no degrees of freedom are left, PyTorch takes the slope for infinite, and for
// NaN at the mean; with dims it follows the formula there too.
Tensor var_gradient(const Tensor& x, const Tensor& dy, const Tensor& near, const VarSetup& s,
                    double factor = 1.0) {
  const Tensor kept = with_kept_dims(dy, x.sizes(), s.dims);
  if (s.dims_given || s.freedom() > 0) {
    const Tensor away = x - with_kept_dims(near, x.sizes(), s.dims);
    return (away - mean(away, s.dims, true)) * affine(kept, factor * 2.0 / s.freedom(), 0.0);
  }
  const double infinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Tensor at_mean = eq(x, mean(x, s.dims, true));
  return affine(kept, factor, 0.0) * where(at_mean, full_scalar(x, nan), full_scalar(x, infinity));
}

// What a local function has left, as a tensor that lies as the result does.
Tensor beside(const Tensor& result, const Array& own) {
  const Array values = own.reshape(result.local().sizes());
  return result.is_sharded() ? Tensor(values, result.spec()) : Tensor(values);
}

// dx of a variance, or of its root y: by one call, unless it is recorded, or follows no formula.
Tensor spread_gradient(const Tensor& x, const Tensor& dy, const Tensor& mean, const Tensor& y,
                       const VarSetup& s) {
  const double factor = y.defined() ? 0.5 : 1.0;
  if (!grad_enabled() && (s.dims_given || s.freedom() > 0)) {
    Tensors of_result{dy, mean};
    if (y.defined()) of_result.push_back(y);
    return deviation_backward({nullptr, s.dims, s.keepdim}, x, of_result, factor * 2.0 / s.freedom());
  }
  const Tensor slope = y.defined() ? over_nonzero(dy, y) : dy;
  return var_gradient(x, slope, finite_or_zero(to(mean, x.dtype())), s, factor);
}

}  // namespace

std::pair<Tensor, Tensor> var_mean(const Tensor& x, const Dims& given, double correction, bool keepdim) {
  static const OpDef op{"var"};
  check_floating(op.name, x);
  const VarSetup s = var_setup(op.name, x, given, correction, keepdim);
  const std::array<Dims, 2> sizes{reduced_sizes(x.sizes(), s.dims, keepdim),
                                  reduced_sizes(x.sizes(), s.dims, keepdim)};
  Array middle;
  auto local = [&](LocalCall& l) { middle = var_local(l, s); };
  auto plan = [&](const std::vector<SpecPtr>& in) { return var_plan(in, s); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    return [s, saved = SavedTensor(in[0]), mean = beside(out[0], middle)](const BackwardContext&,
                                                                          const Tensors& g) {
      const Tensor input = saved.unpack("var");
      Tensor dx;
      if (g[0].defined()) dx = spread_gradient(input, g[0], mean, Tensor(), s);
      if (g[1].defined()) {
        const Tensor from_mean =
            expand(affine(with_kept_dims(g[1], input.sizes(), s.dims), 1.0 / s.count, 0.0), input.sizes());
        dx = dx.defined() ? dx + from_mean : from_mean;
      }
      return Tensors{dx};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = reduction_hash(s.dims, keepdim);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  Tensors out = call(c);
  return {out[0], out[1]};
}

Tensor var(const Tensor& x, const Dims& dims, double correction, bool keepdim) {
  return var_mean(x, dims, correction, keepdim).first;
}

Tensor std(const Tensor& x, const Dims& given, double correction, bool keepdim) {
  static const OpDef op{"std"};
  check_floating(op.name, x);
  const VarSetup s = var_setup(op.name, x, given, correction, keepdim);
  Array middle;
  auto local = [&](const Array& in, const ShardSpec* spec) {
    const Spread spread = global_spread(in, spec, s.dims);
    middle = spread.mean;
    array_unary_(UnaryOp::Sqrt, variance_of(spread, s));
    return spread.m2.to(in.dtype());
  };
  auto gradient = [&](const Tensor& in, const Tensor& out) -> GradFunction {
    return [s, saved = SavedTensor(in), y = SavedTensor::output(out), mean = beside(out, middle)](
               const BackwardContext&, const Tensors& g) {
      return Tensors{spread_gradient(saved.unpack("std"), g[0], mean, y.unpack("std"), s)};
    };
  };
  return complete_reduction({&op, s.dims, keepdim, Hash().add(correction)}, x, local, gradient);
}

Tensor logsumexp(const Tensor& x_given, const Dims& given, bool keepdim) {
  static const OpDef op{"logsumexp"};
  TS_CHECK(x_given.defined(), op.name, "the input is undefined");
  const Tensor x = is_floating(x_given.dtype()) ? x_given : to(x_given, DType::F32);
  const Dims dims = reduction_dims(op.name, given, x.dim());
  ExpSums sums;  // total: its logarithm
  auto local = [&](const Array& in, const ShardSpec* spec) {
    sums = exp_sums(is_half(in.dtype()) ? in.to(DType::F32) : in, spec, dims, true);
    array_unary_(UnaryOp::Log, sums.total);
    return array_binary(BinaryOp::Add, sums.total, sums.top).to(in.dtype());
  };
  auto gradient = [&](const Tensor& in, const Tensor& out) -> GradFunction {
    // What rounding took from the result: far from zero that is more than exp may lose.
    const Array y_local = out.local().to(sums.top.dtype()).reshape(sums.top.sizes());
    const Array rounding =
        array_binary(BinaryOp::Add, array_binary(BinaryOp::Sub, sums.top, y_local), sums.total);
    return [dims, keepdim, saved = SavedTensor(in), y = SavedTensor::output(out),
            lost = beside(out, rounding.to(out.dtype()))](const BackwardContext&, const Tensors& g) {
      const Tensor input = saved.unpack("logsumexp");
      if (!grad_enabled()) {
        const std::array of_result{g[0], y.unpack("logsumexp"), lost};
        return Tensors{logsumexp_backward({nullptr, dims, keepdim}, input, of_result)};
      }
      const auto kept = [&](const Tensor& t) { return with_kept_dims(t, input.sizes(), dims); };
      const Tensor share = exp(input - kept(y.unpack("logsumexp")) - finite_or_zero(kept(lost)));
      return Tensors{share * kept(g[0])};
    };
  };
  return complete_reduction({&op, dims, keepdim, 0}, x, local, gradient);
}

namespace {

// d|x|^p summed and rooted: x |x|^(p-2) dy / y^(p-1), with 0 wherever PyTorch has it.
Tensor power_norm_gradient(const Tensor& x, const Tensor& y, const Tensor& dy, double p) {
  if (p == 2.0) return x * over_nonzero(dy, y);
  if (p >= 2.0) return x * pow(abs(x), p - 2.0) * over_nonzero(dy, pow(y, p - 1.0));
  const Tensor zero = full_scalar(x, 0.0);
  const Tensor is_zero = eq(x, zero);
  const Tensor slope =
      sign(x) * where(is_zero, zero, pow(where(is_zero, full_scalar(x, 1.0), abs(x)), p - 1.0));
  if (p < 1.0) {  // a factor and no divisor: infinite where the norm is
    const Tensor none = eq(y, full_scalar(y, 0.0));
    return slope * where(none, full_scalar(y, 0.0), dy * pow(where(none, full_scalar(y, 1.0), y), 1.0 - p));
  }
  return slope * over_nonzero(dy, pow(y, p - 1.0));
}

Tensor power_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  static const OpDef op{"vector_norm"};
  const auto take_root = [p](const Array& sums) {  // in place
    array_unary_(p == 2.0 ? UnaryOp::Sqrt : UnaryOp::PowScalar, sums, 1.0 / p);
  };
  auto local = [&](const Array& in, const ShardSpec* spec) {
    Array sums = Array::empty(reduced_sizes(in.sizes(), dims, true), DType::F64, in.device());
    kernels::power_sums(in.device(), {sums, in, p});
    if (const unsigned mask = spec != nullptr ? cutting_axes(*spec, dims) : 0; mask != 0) {
      // The parts' norms travel, as wide as the data: unlike sums of powers they do not overflow.
      take_root(sums);
      const Array norms = sums.to(in.dtype() == DType::F64 ? DType::F64 : DType::F32);
      const Array all = gather_over(*spec, mask, norms.reshape({norms.numel()})).to(DType::F64);
      kernels::power_sums(in.device(), {sums.reshape({1, sums.numel()}), all, p});
    }
    take_root(sums);
    return sums.to(in.dtype());
  };
  auto gradient = [&](const Tensor& in, const Tensor& out) -> GradFunction {
    return [dims, keepdim, p, saved = SavedTensor(in), y = SavedTensor::output(out)](const BackwardContext&,
                                                                                     const Tensors& g) {
      const Tensor input = saved.unpack("vector_norm");
      if (!grad_enabled() && p > 1.0)
        return Tensors{
            power_norm_backward({nullptr, dims, keepdim}, input, y.unpack("vector_norm"), g[0], p)};
      const auto kept = [&](const Tensor& t) { return with_kept_dims(t, input.sizes(), dims); };
      return Tensors{power_norm_gradient(input, kept(y.unpack("vector_norm")), kept(g[0]), p)};
    };
  };
  return complete_reduction({&op, dims, keepdim, Hash().add(p)}, x, local, gradient);
}

Tensor norm_named(const char* op, const Tensor& x, double p, const Dims& given, bool keepdim) {
  check_floating(op, x);
  TS_CHECK(!std::isnan(p), op, "the order must be a number, given {}", p);
  const Dims dims = reduction_dims(op, given, x.dim());
  if (p < 0.0 || std::isinf(p))
    for (std::int64_t d : dims)
      TS_CHECK(x.sizes()[static_cast<int>(d)] > 0, op,
               "dim {} of {} is empty; a norm of order {} over nothing has no value", d, x.sizes().str(), p);
  if (p == 0.0) return sum(to(ne(x, full_scalar(x, 0.0)), x.dtype()), dims, keepdim);
  if (p == 1.0) return sum(abs(x), dims, keepdim);
  if (std::isinf(p)) return extremum_norm(x, p > 0, dims, keepdim);
  return power_norm(x, p, dims, keepdim);
}

}  // namespace

Tensor vector_norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  return norm_named("vector_norm", x, p, dims, keepdim);
}
Tensor norm(const Tensor& x, double p, const Dims& dims, bool keepdim) {
  return norm_named("norm", x, p, dims, keepdim);
}

}  // namespace tessera
