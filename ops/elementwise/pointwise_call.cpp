#include "ops/elementwise/pointwise_call.h"

#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/kernels.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// Aligned to the right, expanded to the local output.
Array expanded(const Array& a, const Dims& sizes) { return a.sizes() == sizes ? a : a.expand(sizes); }

// PyTorch's categories: a 0-dim tensor decides the dtype only if its category is the higher one.
int category(DType t) { return t == DType::Bool ? 0 : is_floating(t) ? 2 : 1; }

// Those that make dx of dy and of x or y. A gradient lies as what it belongs to, so that dy is turned round
// at the first operation whose input lies otherwise, and not read across memory at every one before it.
bool is_backward(cpu::BinaryOp kernel) {
  return kernel >= cpu::BinaryOp::ReluBackward && kernel <= cpu::BinaryOp::PowScalarBackward;
}

}  // namespace

Rule broadcast_rule(std::span<const Tensor> inputs, const Dims& out, Linearity linearity) {
  Rule rule;
  rule.linearity = linearity;
  RuleTerm term;
  for (int d = 0; d < out.size(); ++d) term.push_back({static_cast<char>('a' + d), false, false});
  for (const Tensor& t : inputs) {
    RuleTerm in;
    const int lead = out.size() - t.dim();
    for (int d = 0; d < t.dim(); ++d)
      in.push_back(t.sizes()[d] == out[d + lead]
                       ? term[static_cast<std::size_t>(d) + static_cast<std::size_t>(lead)]
                       : RuleDim{});
    rule.inputs.push_back(std::move(in));
  }
  rule.outputs.push_back(std::move(term));
  return rule;
}

const Array& layout_model(const Array& a, const Array& b) {
  if (a.numel() != b.numel()) return a.numel() > b.numel() ? a : b;
  return is_expanded(a) ? b : a;
}

Tensor call_unary(const UnaryCall& u, const Tensor& x, UnaryGradient gradient) {
  TS_CHECK(x.defined(), u.op->name, "the input is undefined");
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    l.out[0] = empty_like(in, in.sizes(), cpu::writes_bool(u.kernel) ? DType::Bool : in.dtype());
    const bool shifts = u.kernel != cpu::UnaryOp::Affine || counts_here(l);
    kernels::unary(in.device(), {l.out[0], in, u.kernel, u.alpha, shifts ? u.beta : 0.0});
  };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, u.linearity); };
  auto make_gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) {
    return gradient(in[0], out[0]);
  };
  OpCall c;
  c.op = u.op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = static_cast<std::size_t>(u.linearity);
  c.rule = rule;
  c.local = local;
  if (gradient) c.gradient = make_gradient;
  return call_one(c);
}

Tensor call_binary(const BinaryCall& bc, const Tensor& a, const Tensor& b, BinaryGradient gradient) {
  const std::array<Tensor, 2> inputs{a, b};
  const Dims sizes = a.sizes() == b.sizes() ? a.sizes() : broadcast_sizes(bc.op->name, a.sizes(), b.sizes());
  auto local = [&](LocalCall& l) {
    const Dims& out = l.out_sizes(0, sizes);
    const std::optional<OwedSum> owed = sum_owed_terms(l, bc.kernel);
    const Array& x = owed && owed->input == 0 ? owed->sum : l.in[0];
    const Array& y = owed && owed->input == 1 ? owed->sum : l.in[1];
    const bool backward = is_backward(bc.kernel);
    const Array& model = backward ? layout_model(y, x) : layout_model(x, y);
    l.out[0] = empty_like(model, out, cpu::is_comparison(bc.kernel) ? DType::Bool : x.dtype());
    Array first = expanded(x, out);
    if (backward && !is_expanded(first) && memory_order(first) != memory_order(l.out[0])) {
      copy_strided(l.out[0], first);  // a copy turns round faster than arithmetic does
      first = l.out[0];
    }
    kernels::binary(model.device(),
                    {l.out[0], std::move(first), expanded(y, out), bc.kernel, bc.alpha, bc.beta});
    if (owed && owed->elsewhere) fill(l.out[0], 0.0);
  };
  auto rule = [&] { return broadcast_rule(inputs, sizes, bc.linearity); };
  auto make_gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) {
    return gradient(in[0], in[1]);
  };
  OpCall c;
  c.op = bc.op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.parameters = static_cast<std::size_t>(bc.linearity);
  c.rule = rule;
  c.local = local;
  if (gradient) c.gradient = make_gradient;
  return call_one(c);
}

std::pair<Tensor, Tensor> promoted(const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return {a, b};
  DType t = promote(a.dtype(), b.dtype());
  if (a.dim() == 0 && b.dim() > 0 && category(a.dtype()) <= category(b.dtype())) t = b.dtype();
  if (b.dim() == 0 && a.dim() > 0 && category(b.dtype()) <= category(a.dtype())) t = a.dtype();
  return {to(a, t), to(b, t)};
}

DType common_dtype(std::span<const Tensor> operands) {
  std::optional<DType> of_dims;
  std::optional<DType> of_none;
  for (const Tensor& t : operands) {
    std::optional<DType>& own = t.dim() > 0 ? of_dims : of_none;
    own = own ? promote(*own, t.dtype()) : t.dtype();
  }
  if (!of_dims || !of_none) return of_dims ? *of_dims : of_none.value();
  return category(*of_none) > category(*of_dims) ? promote(*of_dims, *of_none) : *of_dims;
}

bool fits_integer(DType dtype, double number) {
  const double end = std::ldexp(1.0, dtype == DType::I32 ? 31 : 63);
  return number >= -end && number < end;
}

Tensor full_scalar(const Tensor& like, double value) {
  return Tensor(Array::full({}, value, like.dtype(), like.device()));
}

}  // namespace tessera
