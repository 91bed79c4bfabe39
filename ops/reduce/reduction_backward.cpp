#include "ops/reduce/reduction_backward.h"

#include <algorithm>
#include <array>

#include "mesh/mesh_state.h"
#include "ops/elementwise/array_math.h"
#include "ops/elementwise/ternary_kernel.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/reduce/groups.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::TernaryOp;
using cpu::UnaryOp;

// x and what its result has: the dims that are left share its letters. A number has none.
Rule backward_rule(const CompleteReduction& r, const Dims& sizes, std::span<const Tensor> of_result) {
  RuleTerm whole;
  RuleTerm small;
  for (int d = 0; d < sizes.size(); ++d) {
    const RuleDim t{static_cast<char>('a' + d), false, false};
    const bool reduced = std::find(r.dims.begin(), r.dims.end(), d) != r.dims.end();
    whole.push_back(t);
    if (!reduced) small.push_back(t);
    if (reduced && r.keepdim) small.push_back({});
  }
  Rule rule;
  rule.inputs = {whole};
  for (const Tensor& t : of_result) rule.inputs.push_back(t.dim() == 0 ? RuleTerm() : small);
  rule.outputs = {whole};
  return rule;
}

CompleteReduction as(const OpDef& op, CompleteReduction r) {
  r.op = &op;
  return r;
}

Array like(const Array& x) { return empty_like(x, x.sizes(), x.dtype()); }

struct Function {
  TernaryOp op;
  double alpha;
};
// Of a, x and c, which are spread to x's sizes; c may be undefined.
void ternary_into(const Array& out, const Array& x, const Array& a, const Array& c, const Function& f) {
  kernels::ternary(x.device(),
                   {out, a.expand(x.sizes()), x, c.defined() ? c.expand(x.sizes()) : c, f.op, f.alpha});
}

}  // namespace

Tensor reduction_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> of_result,
                          ReductionBackward local) {
  Tensors inputs{x};
  inputs.insert(inputs.end(), of_result.begin(), of_result.end());
  auto rule = [&] { return backward_rule(r, x.sizes(), of_result); };
  auto run = [&](LocalCall& l) {
    const Dims kept = reduced_sizes(l.in[0].sizes(), r.dims, true);
    std::vector<Array> small;
    for (std::size_t i = 1; i < l.in.size(); ++i)
      small.push_back(l.in[i].numel() == numel_of(kept) ? l.in[i].reshape(kept) : l.in[i]);
    l.out[0] = local({l.in[0], small[0], std::span(small).subspan(1), l.in_spec(0)});
  };
  OpCall c;
  c.op = r.op;
  c.inputs = inputs;
  c.output_sizes = {&x.sizes(), 1};
  c.parameters = reduction_hash(r.dims, r.keepdim);
  c.rule = rule;
  c.local = run;
  return call_one(c);
}

void ternary_in_place(const Array& x, const Array& a, TernaryOp op, const Array& c, double alpha) {
  ternary_into(x, x, a, c, {op, alpha});
}

Array ternary_like(const Array& x, const Array& a, TernaryOp op, const Array& c, double alpha) {
  const Array out = like(x);
  ternary_into(out, x, a, c, {op, alpha});
  return out;
}

Tensor extremum_backward(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                         bool nan_is_extreme) {
  static const OpDef op{"extremum_backward"};
  const std::array of_result{dy, y};
  return reduction_backward(as(op, r), x, of_result, [&](const ReducedArrays& a) {
    const Array ties = like(a.x);
    kernels::ternary(a.x.device(), {ties, a.x, a.others[0].expand(a.x.sizes()), Array(),
                                    nan_is_extreme ? TernaryOp::TieOrNan : TernaryOp::Tie});
    Array count = array_reduce(cpu::ReduceKind::Sum, ties, r.dims);
    if (const unsigned mask = a.spec == nullptr ? 0 : cutting_axes(*a.spec, r.dims); mask != 0) {
      const Communicator& group = a.spec->mesh_core()->groups[mask];
      if (group.size() > 1) group.all_reduce(count, ReduceOp::Sum).wait();
    }
    const Array share = array_binary(BinaryOp::Div, a.dy, count);
    kernels::binary(a.x.device(), {ties, ties, share.expand(ties.sizes()), BinaryOp::Mul});
    return ties;
  });
}

Tensor power_norm_backward(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                           double p) {
  static const OpDef op{"norm_backward"};
  const std::array of_result{dy, y};
  return reduction_backward(as(op, r), x, of_result, [&](const ReducedArrays& a) {
    const Array out = like(a.x);
    const auto quotient = [&](const Array& by, const Array& of) {
      kernels::ternary(a.x.device(),
                       {out, a.dy.expand(out.sizes()), by.expand(out.sizes()), of, TernaryOp::Quotient});
      return out;
    };
    if (p == 2.0) return quotient(a.others[0], a.x);
    const Array root = array_unary(UnaryOp::PowScalar, a.others[0], p - 1.0);
    kernels::unary(a.x.device(), {out, a.x, UnaryOp::Abs});
    array_unary_(UnaryOp::PowScalar, out, p >= 2.0 ? p - 2.0 : p - 1.0);
    const Array sign = p >= 2.0 ? a.x : array_unary(UnaryOp::Sign, a.x);
    kernels::binary(a.x.device(), {out, sign, out, BinaryOp::Mul});
    return quotient(root, out);
  });
}

Tensor deviation_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> dy_mean_y,
                          double scale) {
  static const OpDef op{"var_backward"};
  return reduction_backward(as(op, r), x, dy_mean_y, [&](const ReducedArrays& a) {
    // The mean in two terms: far from zero one would be rounded to what x can hold.
    const Array& mean = a.others[0];
    const Array head = mean.to(a.x.dtype());
    const Array rest = a.x.dtype() == DType::F64
                           ? Array()
                           : array_binary(BinaryOp::Sub, mean, head.to(DType::F64)).to(a.x.dtype());
    const Array slope =
        a.others.size() < 2 ? a.dy : ternary_like(a.others[1], a.dy, TernaryOp::Quotient, Array());
    const Array out = like(a.x);
    kernels::binary(a.x.device(), {out, a.x, head.expand(out.sizes()), BinaryOp::Sub});
    ternary_in_place(out, slope, TernaryOp::Deviation, rest, scale);
    return out;
  });
}

Tensor logsumexp_backward(const CompleteReduction& r, const Tensor& x, std::span<const Tensor> dy_y_lost) {
  static const OpDef op{"logsumexp_backward"};
  return reduction_backward(as(op, r), x, dy_y_lost, [&](const ReducedArrays& a) {
    const Array out = like(a.x);
    kernels::binary(a.x.device(), {out, a.x, a.others[0].expand(out.sizes()), BinaryOp::Sub});
    ternary_in_place(out, a.dy, TernaryOp::Exp, a.others[1]);
    return out;
  });
}

}  // namespace tessera
