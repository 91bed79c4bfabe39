// clamp between tensors.
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

using cpu::BinaryOp;

// Plans are kept by it, and one bound is not the other.
const OpDef kBoth{"clamp"};
const OpDef kBelow{"clamp"};
const OpDef kAbove{"clamp"};

Tensor both(const Tensor& a, const Tensor& b) { return mul(a, b); }  // of truth values
Tensor either(const Tensor& a, const Tensor& b) { return maximum(a, b); }
Tensor half(const Tensor& t) { return affine(t, 0.5, 0.0); }

// As of maximum and minimum: half to each on ties, all of it to both beside a NaN.
Tensors one_bound_gradients(const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& bound,
                            bool below) {
  const auto loses = [below](const Tensor& a, const Tensor& b) { return below ? lt(a, b) : gt(a, b); };
  const Tensor shared = where(eq(x, bound), half(dy), dy);
  Tensors grads(2);
  if (c.needs(0)) grads[0] = where(loses(x, bound), 0.0, shared);
  if (c.needs(1)) grads[1] = where(loses(bound, x), 0.0, shared);
  return grads;
}

// Half to x and half to a bound that it ties with below (above) the other one. All of it goes to max where
// the bounds cross, to x where it lies on both, and to x alone where there is a NaN.
Tensors two_bounds_gradients(const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& min,
                             const Tensor& max) {
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
  return [kept, sizes, below = &b.op == &kBelow](const BackwardContext& c, const Tensors& g) {
    Tensors t;
    for (const SavedTensor& k : kept) t.push_back(k.unpack("clamp"));
    Tensors grads = t.size() > 2 ? two_bounds_gradients(c, g[0], t[0], t[1], t[2])
                                 : one_bound_gradients(c, g[0], t[0], t[1], below);
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
