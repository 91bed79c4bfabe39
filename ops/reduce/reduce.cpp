#include "ops/reduce/reduce.h"

#include <limits>

#include "autograd/adjoints.h"
#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/prod_gradient.h"
#include "ops/reduce/reduction_backward.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

using cpu::ReduceKind;

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
  bool nan_is_extreme = false;  // takes the gradient where it is the result
  double scale = 1.0;           // of a sum; no plan depends on it
};

using ReduceGradient = FunctionRef<GradFunction(const Tensor& x, const Tensor& y)>;

Tensor reduce(const Reduction& r, const Tensor& x, const Dims& dims, bool keepdim,
              ReduceGradient gradient = {}) {
  const Dims sizes = reduced_sizes(x.sizes(), dims, keepdim);
  const Dims& whole = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    const Dims kept = reduced_sizes(in.sizes(), dims, true);
    const bool counts = (r.kind == ReduceKind::Sum || r.kind == ReduceKind::Product) &&
                        (in.dtype() == DType::Bool || in.dtype() == DType::I32);
    const Array out = Array::empty(kept, counts ? DType::I64 : in.dtype(), in.device());
    kernels::reduce(in.device(), {out, in, r.kind});
    if (r.scale != 1.0) array_unary_(cpu::UnaryOp::Affine, out, r.scale);
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
  c.parameters = reduction_hash(dims, keepdim);
  c.rule = rule;
  c.local = local;
  if (gradient) c.gradient = make_gradient;
  return call_one(c);
}

Tensor extremum(const Reduction& r, const Tensor& x, const Dims& given, bool keepdim) {
  TS_CHECK(x.defined(), r.op->name, "the input is undefined");
  const Dims dims = reduction_dims(r.op->name, given, x.dim());
  for (std::int64_t d : dims)
    TS_CHECK(x.sizes()[static_cast<int>(d)] > 0, r.op->name,
             "dim {} of {} is empty; there is no extremum over nothing", d, x.sizes().str());
  return reduce(r, x, dims, keepdim, [&](const Tensor& in, const Tensor& out) -> GradFunction {
    return [r, dims, keepdim, x = SavedTensor(in), y = SavedTensor::output(out)](const BackwardContext&,
                                                                                 const Tensors& g) {
      const Tensor input = x.unpack(r.op->name);
      if (!grad_enabled())
        return Tensors{
            extremum_backward({nullptr, dims, keepdim}, input, y.unpack(r.op->name), g[0], r.nan_is_extreme)};
      const Tensor best = with_kept_dims(y.unpack(r.op->name), input.sizes(), dims);
      const Tensor equal = eq(input, best);
      const Tensor ties = to(r.nan_is_extreme ? maximum(equal, ne(input, input)) : equal, input.dtype());
      const Tensor share = with_kept_dims(g[0], input.sizes(), dims) / sum(ties, dims, true);
      return Tensors{ties * share};
    };
  });
}

// The gradient of a sum over `dims` with these as 1, before it becomes as large as what was summed, of spec
// `x`. What is owed of it along axes that cut x is made up for while it is small.
Tensor small_settled(const Tensor& g, const SpecPtr& x, const Dims& dims) {
  if (!x || !g.is_sharded() || !g.spec()->has_partial() || g.spec()->mesh_core() != x->mesh_core()) return g;
  const SpecPtr like = reduced_spec(*x, dims, true);
  Placements placements = like->placements();
  bool any = false;
  for (std::size_t a = 0; a < placements.size(); ++a) {
    const Placement& own = g.spec()->placements()[a];
    if (own.is_shard() && !(own == placements[a])) return g;
    if (!own.is_partial()) continue;
    if (x->placements()[a].is_replicate()) {
      placements[a] = own;
    } else {
      any = true;
    }
  }
  return any ? settled(g, with_placements(*like, placements)) : g;
}

// r.scale times the sum.
Tensor summed(const Reduction& r, const Tensor& x, const Dims& dims, bool keepdim) {
  return reduce(r, x, dims, keepdim, [&](const Tensor& in, const Tensor&) -> GradFunction {
    return [scale = r.scale, dims, sizes = in.sizes(), spec = in.spec()](const BackwardContext&,
                                                                         const Tensors& g) {
      // A number can be spread as it is.
      const bool number = g[0].dim() == 0 && (!g[0].is_sharded() || !g[0].spec()->has_partial());
      const Tensor own = number ? g[0] : small_settled(with_kept_dims(g[0], sizes, dims), spec, dims);
      return Tensors{expand(scale == 1.0 ? own : affine(own, scale, 0.0), sizes)};
    };
  });
}

// The elements as bools: not 0 (NaN is not 0).
Tensor truth(const Tensor& x) { return x.dtype() == DType::Bool ? x : ne(x, full_scalar(x, 0.0)); }

// Whether a sum or product of x is of that dtype without a cast.
bool gives(DType dtype, const Tensor& x) {
  return dtype == x.dtype() && (is_floating(dtype) || dtype == DType::I64);
}

Dims checked_dims(const char* op, const Tensor& x, const Dims& dims) {
  TS_CHECK(x.defined(), op, "the input is undefined");
  return reduction_dims(op, dims, x.dim());
}

}  // namespace

Tensor sum(const Tensor& x, const Dims& given, bool keepdim, std::optional<DType> dtype) {
  static const OpDef op{"sum"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (dtype && !gives(*dtype, x)) {
    const Dims dims = reduction_dims(op.name, given, x.dim());
    if (*dtype == DType::Bool) return any(x, dims, keepdim);
    return to(sum(to(x, *dtype), dims, keepdim), *dtype);
  }
  if (x.dtype() == DType::Bool && x.is_sharded() && x.spec()->has_partial())
    return sum(to(x, DType::I64), given, keepdim);  // owed bools are or-ed, which must come before counting
  const Dims dims = reduction_dims(op.name, given, x.dim());
  return summed({&op, ReduceKind::Sum, ReduceOp::Sum}, x, dims, keepdim);
}

Tensor scaled_sum(const Tensor& x, double scale, const Dims& dims, bool keepdim) {
  static const OpDef op{"mean"};
  if (x.dtype() == DType::F16) return to(scaled_sum(to(x, DType::F32), scale, dims, keepdim), DType::F16);
  Reduction r{&op, ReduceKind::Sum, ReduceOp::Sum};
  r.scale = scale;
  return summed(r, x, reduction_dims(op.name, dims, x.dim()), keepdim);
}

Tensor mean(const Tensor& x, const Dims& given, bool keepdim, std::optional<DType> dtype) {
  if (dtype) {
    const Dims dims = checked_dims("mean", x, given);
    return mean(cast_to_floating("mean", x, *dtype), dims, keepdim);
  }
  check_floating("mean", x);
  const Dims dims = reduction_dims("mean", given, x.dim());
  const double n = reduced_count(x.sizes(), dims);
  const double scale = n == 0 ? std::numeric_limits<double>::quiet_NaN() : 1.0 / n;
  return scaled_sum(x, scale, dims, keepdim);
}

Tensor amax(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"amax"};
  return extremum({&op, ReduceKind::Max, ReduceOp::Max}, x, dims, keepdim);
}

Tensor amin(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"amin"};
  return extremum({&op, ReduceKind::Min, ReduceOp::Min}, x, dims, keepdim);
}

Tensor extremum_norm(const Tensor& x, bool largest, const Dims& dims, bool keepdim) {
  static const OpDef most{"vector_norm"};
  static const OpDef least{"vector_norm"};
  const Reduction r = largest ? Reduction{&most, ReduceKind::Max, ReduceOp::Max, true}
                              : Reduction{&least, ReduceKind::Min, ReduceOp::Min, true};
  return extremum(r, abs(x), dims, keepdim);
}

Tensor any(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"any"};
  const Dims over = checked_dims(op.name, x, dims);
  return reduce({&op, ReduceKind::Max, ReduceOp::Max}, truth(x), over, keepdim);
}

Tensor all(const Tensor& x, const Dims& dims, bool keepdim) {
  static const OpDef op{"all"};
  const Dims over = checked_dims(op.name, x, dims);
  return reduce({&op, ReduceKind::Min, ReduceOp::Min}, truth(x), over, keepdim);
}

Tensor count_nonzero(const Tensor& x, const Dims& dims) {
  const Dims over = checked_dims("count_nonzero", x, dims);
  return sum(truth(x), over);
}

Tensor prod(const Tensor& x, const Dims& given, bool keepdim, std::optional<DType> dtype) {
  static const OpDef op{"prod"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (dtype && !gives(*dtype, x)) {
    reduction_dims(op.name, given, x.dim());
    if (*dtype == DType::Bool) return all(x, given, keepdim);
    return to(prod(to(x, *dtype), given, keepdim), *dtype);
  }
  if (x.dtype() == DType::Bool && x.is_sharded() && x.spec()->has_partial())
    return prod(to(x, DType::I64), given, keepdim);
  const Dims dims = reduction_dims(op.name, given, x.dim());
  const bool whole = given.empty();
  return reduce({&op, ReduceKind::Product, ReduceOp::Product}, x, dims, keepdim,
                [&](const Tensor& in, const Tensor& out) -> GradFunction {
                  return [dims, keepdim, whole, x = SavedTensor(in), y = SavedTensor::output(out)](
                             const BackwardContext&, const Tensors& g) {
                    return Tensors{prod_gradient({nullptr, dims, keepdim}, x.unpack("prod"), y.unpack("prod"),
                                                 g[0], whole)};
                  };
                });
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
