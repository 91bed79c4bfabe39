#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/extremum_gradient.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

using cpu::BinaryOp;

void check(const char* op, const Tensor& a, const Tensor& b) {
  TS_CHECK(a.defined() && b.defined(), op, "an input is undefined");
}

using PairGradient = Tensors (*)(const BackwardContext& c, const Tensor& dy, const Tensor& a,
                                 const Tensor& b);

// Broadcast, promotion and saving are the same for all; `formula` gives gradients of the broadcast shape.
Tensor with_gradient(const BinaryCall& bc, const Tensor& a, const Tensor& b, PairGradient formula,
                     bool save) {
  check(bc.op->name, a, b);
  auto [x, y] = promoted(a, b);
  return call_binary(bc, x, y, [&](const Tensor& in_a, const Tensor& in_b) -> GradFunction {
    const SavedTensor sa = save ? SavedTensor(in_a) : SavedTensor();
    const SavedTensor sb = save ? SavedTensor(in_b) : SavedTensor();
    return [formula, name = bc.op->name, sa, sb, size_a = in_a.sizes(), size_b = in_b.sizes()](
               const BackwardContext& c, const Tensors& g) {
      Tensors grads = formula(c, g[0], sa.unpack(name), sb.unpack(name));
      if (grads[0].defined()) grads[0] = sum_to_size(grads[0], size_a);
      if (grads[1].defined()) grads[1] = sum_to_size(grads[1], size_b);
      return grads;
    };
  });
}

Tensor compare(const OpDef& op, BinaryOp kernel, const Tensor& a, const Tensor& b) {
  check(op.name, a, b);
  auto [x, y] = promoted(a, b);
  return call_binary({&op, kernel}, x, y);
}

// a + alpha b
Tensor add_scaled(const OpDef& op, const Tensor& a, const Tensor& b, double alpha) {
  check(op.name, a, b);
  TS_CHECK(alpha == std::floor(alpha) || is_floating(a.dtype()) || is_floating(b.dtype()), op.name,
           "alpha must be whole for {} and {} tensors, given {}", name_of(a.dtype()), name_of(b.dtype()),
           std::abs(alpha));
  auto [x, y] = promoted(a, b);
  // Infinity times a term that is 0 would be NaN where the sum of terms is not 0.
  const Linearity linearity = std::isinf(alpha) ? Linearity::None : Linearity::Joint;
  return call_binary({&op, BinaryOp::Add, alpha, 0, linearity}, x, y,
                     [&](const Tensor& in_a, const Tensor& in_b) -> GradFunction {
                       return [alpha, size_a = in_a.sizes(), size_b = in_b.sizes()](const BackwardContext& c,
                                                                                    const Tensors& g) {
                         Tensors grads(2);
                         if (c.needs(0)) grads[0] = sum_to_size(g[0], size_a);
                         if (c.needs(1))
                           grads[1] = sum_to_size(alpha == 1.0 ? g[0] : affine(g[0], alpha, 0), size_b);
                         return grads;
                       };
                     });
}

}  // namespace

Tensor add(const Tensor& a, const Tensor& b, double alpha) {
  static const OpDef op{"add"};
  return add_scaled(op, a, b, alpha);
}

Tensor sub(const Tensor& a, const Tensor& b, double alpha) {
  static const OpDef op{"sub"};
  TS_CHECK(!a.defined() || !b.defined() || a.dtype() != DType::Bool || b.dtype() != DType::Bool, op.name,
           "takes floating and integer tensors, given two of bool");
  return add_scaled(op, a, b, -alpha);
}

Tensor mul(const Tensor& a, const Tensor& b) {
  static const OpDef op{"mul"};
  check(op.name, a, b);
  return with_gradient(
      {&op, BinaryOp::Mul, 1, 0, owed_through(BinaryOp::Mul, a, b)}, a, b,
      [](const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& y) {
        return Tensors{c.needs(0) ? mul(dy, y) : Tensor(), c.needs(1) ? mul(dy, x) : Tensor()};
      },
      true);
}

Tensor div(const Tensor& a, const Tensor& b) {
  static const OpDef op{"div"};
  check(op.name, a, b);
  const bool integers = !is_floating(a.dtype()) && !is_floating(b.dtype());
  return with_gradient(
      {&op, BinaryOp::Div, 1, 0, owed_through(BinaryOp::Div, a, b)}, integers ? to(a, DType::F32) : a,
      integers ? to(b, DType::F32) : b,
      [](const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& y) {
        const Tensor over = div(dy, y);
        return Tensors{c.needs(0) ? over : Tensor(), c.needs(1) ? neg(mul(over, div(x, y))) : Tensor()};
      },
      true);
}

#define TS_EXTREMUM(function, KERNEL)                                                      \
  Tensor function(const Tensor& a, const Tensor& b) {                                      \
    static const OpDef op{#function};                                                      \
    return with_gradient(                                                                  \
        {&op, BinaryOp::KERNEL}, a, b,                                                     \
        [](const BackwardContext& c, const Tensor& dy, const Tensor& x, const Tensor& y) { \
          return extremum_gradient(c, dy, x, y, cpu::TernaryOp::KERNEL##Backward);         \
        },                                                                                 \
        true);                                                                             \
  }
#define TS_COMPARISON(function, KERNEL)               \
  Tensor function(const Tensor& a, const Tensor& b) { \
    static const OpDef op{#function};                 \
    return compare(op, BinaryOp::KERNEL, a, b);       \
  }

TS_EXTREMUM(maximum, Maximum)
TS_EXTREMUM(minimum, Minimum)
TS_COMPARISON(eq, Eq)
TS_COMPARISON(ne, Ne)
TS_COMPARISON(lt, Lt)
TS_COMPARISON(le, Le)
TS_COMPARISON(gt, Gt)
TS_COMPARISON(ge, Ge)

#undef TS_EXTREMUM
#undef TS_COMPARISON

Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b) {
  static const OpDef op{"where"};
  check(op.name, a, b);
  TS_CHECK(condition.defined() && condition.dtype() == DType::Bool, op.name,
           "the condition must be bool, given {}",
           condition.defined() ? name_of(condition.dtype()) : "undefined");
  auto [x, y] = promoted(a, b);
  const std::array<Tensor, 3> inputs{condition, x, y};
  const Dims sizes =
      broadcast_sizes(op.name, broadcast_sizes(op.name, condition.sizes(), x.sizes()), y.sizes());
  auto local = [&](LocalCall& l) {
    const Dims& out = l.out_sizes(0, sizes);
    l.out[0] = empty_like(layout_model(l.in[0], layout_model(l.in[1], l.in[2])), out, l.in[1].dtype());
    kernels::where(l.in[1].device(),
                   {l.out[0], l.in[0].expand(out), l.in[1].expand(out), l.in[2].expand(out)});
  };
  auto rule = [&] { return broadcast_rule(inputs, sizes, Linearity::Rest); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [cond = SavedTensor(in[0]), size_a = in[1].sizes(), size_b = in[2].sizes()](
               const BackwardContext& c, const Tensors& g) {
      const Tensor mask = cond.unpack("where");
      const Tensor zero = full_scalar(g[0], 0.0);
      Tensors grads(3);
      if (c.needs(1)) grads[1] = sum_to_size(where(mask, g[0], zero), size_a);
      if (c.needs(2)) grads[2] = sum_to_size(where(mask, zero, g[0]), size_b);
      return grads;
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor to(const Tensor& x, DType dtype) {
  static const OpDef op{"to"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (x.dtype() == dtype) return x;
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) {
    l.out[0] = empty_like(l.in[0], l.in[0].sizes(), dtype);
    copy_strided(l.out[0], l.in[0]);
  };
  // A sum owed in one type may be rounded term by term only upwards. (Of bools terms are or-ed.)
  const bool widens =
      x.dtype() != DType::Bool && (dtype == DType::F64 || (dtype == DType::F32 && is_half(x.dtype())));
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, widens ? Linearity::Each : Linearity::None); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return
        [back = in[0].dtype()](const BackwardContext&, const Tensors& g) { return Tensors{to(g[0], back)}; };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.parameters = Hash().add(static_cast<std::int64_t>(dtype)).add(static_cast<std::int64_t>(widens));
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor contiguous(const Tensor& x) {
  static const OpDef op{"contiguous"};
  TS_CHECK(x.defined(), op.name, "the input is undefined");
  if (x.local().is_contiguous() && !x.is_sharded()) return x;
  const Dims& sizes = x.sizes();
  auto local = [&](LocalCall& l) { l.out[0] = l.in[0].contiguous(); };
  auto rule = [&] { return broadcast_rule({&x, 1}, sizes, Linearity::Select); };
  auto gradient = [](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [](const BackwardContext&, const Tensors& g) { return g; };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
