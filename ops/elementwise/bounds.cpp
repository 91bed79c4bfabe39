// clamp between tensors, and what their gradient shares with that of maximum and minimum.
#include <array>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/extremum_gradient.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/elementwise/ternary_kernel.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::TernaryOp;

// Plans are kept by it, and one bound is not the other.
const OpDef kBoth{"clamp"};
const OpDef kBelow{"clamp"};
const OpDef kAbove{"clamp"};

Tensor both(const Tensor& a, const Tensor& b) { return mul(a, b); }  // of truth values
Tensor either(const Tensor& a, const Tensor& b) { return maximum(a, b); }
Tensor half(const Tensor& t) { return affine(t, 0.5, 0.0); }

// dy's share of one operand, in one call that is not recorded: nothing that is owed of dy is made for it.
struct Shares {
  const OpDef& op;
  Dims sizes;
  FunctionRef<void(const Array& out, std::span<const Array> in)> kernel;
};
Tensor shared_out(const Shares& s, std::span<const Tensor> inputs) {
  auto local = [&](LocalCall& l) {
    const Dims& sizes = l.out_sizes(0, s.sizes);
    std::vector<Array> in;
    for (const Array& a : l.in) in.push_back(a.expand(sizes));
    // A gradient lies as the operand does.
    l.out[0] = empty_like(layout_model(l.in[1], l.in[0]), sizes, l.in[0].dtype());
    s.kernel(l.out[0], in);
  };
  auto rule = [&] { return broadcast_rule(inputs, s.sizes, Linearity::First); };
  OpCall c;
  c.op = &s.op;
  c.inputs = inputs;
  c.output_sizes = {&s.sizes, 1};
  c.rule = rule;
  c.local = local;
  return call_one(c);
}
Tensor extremum_share(const Tensor& dy, const Tensor& own, const Tensor& other, TernaryOp kernel) {
  static const OpDef op{"maximum_backward"};
  const std::array inputs{dy, own, other};
  auto run = [&](const Array& out, std::span<const Array> in) {
    kernels::ternary(out.device(), {out, in[0], in[1], in[2], kernel});
  };
  return shared_out({op, dy.sizes(), run}, inputs);
}

// Of x, min or max, which `kernel` says.
Tensor clamp_share(const Tensor& dy, std::span<const Tensor> x_min_max, TernaryOp kernel) {
  static const OpDef op{"clamp_backward"};
  const std::array inputs{dy, x_min_max[0], x_min_max[1], x_min_max[2]};
  auto run = [&](const Array& out, std::span<const Array> in) {
    kernels::ternary(out.device(), {out, in[1], in[2], in[3], kernel});
    kernels::ternary(out.device(), {out, in[0], out, Array(), TernaryOp::Share});
  };
  return shared_out({op, dy.sizes(), run}, inputs);
}

// Half to x and half to a bound that it ties with below (above) the other one. All of it goes to max where
// the bounds cross, to x where it lies on both, and to x alone where there is a NaN.
Tensors two_bounds_gradients(const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& min,
                             const Tensor& max) {
  if (!grad_enabled()) {
    const std::array inputs{x, min, max};
    const auto share = [&](std::size_t i, TernaryOp kernel) {
      return c.needs(i) ? clamp_share(dy, inputs, kernel) : Tensor();
    };
    return {share(0, TernaryOp::ClampShare), share(1, TernaryOp::ClampMinShare),
            share(2, TernaryOp::ClampMaxShare)};
  }
  const Tensor apart = lt(min, max);
  const Tensor on_min = both(eq(x, min), apart);
  const Tensor on_max = both(eq(x, max), apart);
  const Tensor zero = full_scalar(dy, 0.0);
  const Tensor shared = half(dy);
  const auto share = [&](const Tensor& all, const Tensor& tie) {
    return where(all, dy, where(tie, shared, zero));
  };
  Tensors grads(3);
  if (c.needs(0))
    grads[0] = where(either(lt(x, min), gt(x, max)), zero, where(either(on_min, on_max), shared, dy));
  const Tensor in_order = le(min, max);
  if (c.needs(1)) grads[1] = share(both(lt(x, min), in_order), on_min);
  if (c.needs(2)) grads[2] = share(either(gt(min, max), both(gt(x, max), in_order)), on_max);
  return grads;
}

struct Bounded {
  const OpDef& op;
  Tensors inputs;  // x and one bound, or both
  Dims sizes;
};

void clamp_arrays(LocalCall& l, const Bounded& b) {
  const Dims& sizes = l.out_sizes(0, b.sizes);
  const Array model = layout_model(l.in[0], l.in[1]);
  const Array out = empty_like(model, sizes, l.in[0].dtype());
  const BinaryOp first = &b.op == &kAbove ? BinaryOp::Minimum : BinaryOp::Maximum;
  kernels::binary(out.device(), {out, l.in[0].expand(sizes), l.in[1].expand(sizes), first});
  if (l.in.size() > 2) kernels::binary(out.device(), {out, out, l.in[2].expand(sizes), BinaryOp::Minimum});
  l.out[0] = out;
}

GradFunction clamp_gradient(const Bounded& b, std::span<const Tensor> in) {
  std::vector<SavedTensor> kept;
  std::vector<Dims> sizes;
  for (const Tensor& t : in) {
    kept.emplace_back(t);
    sizes.push_back(t.sizes());
  }
  return [kept, sizes, kernel = &b.op == &kBelow ? TernaryOp::MaximumBackward : TernaryOp::MinimumBackward](
             const BackwardContext& c, const Tensors& g) {
    Tensors t;
    for (const SavedTensor& k : kept) t.push_back(k.unpack("clamp"));
    Tensors grads = t.size() > 2 ? two_bounds_gradients(c, g[0], t[0], t[1], t[2])
                                 : extremum_gradient(c, g[0], t[0], t[1], kernel);
    for (std::size_t i = 0; i < grads.size(); ++i)
      if (grads[i].defined()) grads[i] = sum_to_size(grads[i], sizes[i]);
    return grads;
  };
}

Tensor call_clamp(const Bounded& b) {
  auto local = [&](LocalCall& l) { clamp_arrays(l, b); };
  auto rule = [&] { return broadcast_rule(b.inputs, b.sizes, Linearity::None); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) { return clamp_gradient(b, in); };
  OpCall c;
  c.op = &b.op;
  c.inputs = b.inputs;
  c.output_sizes = {&b.sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace

Tensors extremum_gradient(const BackwardContext& c, const Tensor& dy, const Tensor& a, const Tensor& b,
                          TernaryOp kernel) {
  Tensors grads(2);
  if (!grad_enabled()) {
    if (c.needs(0)) grads[0] = extremum_share(dy, a, b, kernel);
    if (c.needs(1)) grads[1] = extremum_share(dy, b, a, kernel);
    return grads;
  }
  const auto loses = [kernel](const Tensor& own, const Tensor& other) {
    return kernel == TernaryOp::MaximumBackward ? lt(own, other) : gt(own, other);
  };
  const Tensor shared = where(eq(a, b), half(dy), dy);
  if (c.needs(0)) grads[0] = where(loses(a, b), 0.0, shared);
  if (c.needs(1)) grads[1] = where(loses(b, a), 0.0, shared);
  return grads;
}

Tensor clamp(const Tensor& x, const Tensor& min, const Tensor& max) {
  TS_CHECK(x.defined(), "clamp", "the input is undefined");
  TS_CHECK(min.defined() || max.defined(), "clamp",
           "min and max are undefined; at least one of them is needed");
  check_together("clamp", {&x, &min, &max});
  Bounded b{min.defined() ? max.defined() ? kBoth : kBelow : kAbove, {x}, x.sizes()};
  for (const Tensor* bound : {&min, &max}) {
    if (!bound->defined()) continue;
    b.inputs.push_back(*bound);
    b.sizes = broadcast_sizes("clamp", b.sizes, bound->sizes());
  }
  const DType dtype = common_dtype(b.inputs);
  for (Tensor& t : b.inputs) t = to(t, dtype);
  return call_clamp(b);
}

}  // namespace tessera
