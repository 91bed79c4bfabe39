#include "ops/window/separable.h"

#include "ops/memory_order.h"
#include "ops/shape/element_map.h"
#include "ops/window/window_kernels.h"
#include "ops/window/window_plan.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::ApplyRowsArgs&)> kernels::apply_rows{"apply_rows", &cpu::apply_rows};
namespace {

// A dense array as [outer, size of `dim`, inner], in memory order.
Array three_dims(const Array& dense, const Dims& order, int dim) {
  const auto at = static_cast<int>(std::find(order.begin(), order.end(), dim) - order.begin());
  std::int64_t outer = 1;
  std::int64_t inner = 1;
  for (int i = 0; i < order.size(); ++i) {
    const std::int64_t n = dense.size(static_cast<int>(order[i]));
    if (i < at) outer *= n;
    if (i > at) inner *= n;
  }
  const std::int64_t n = dense.size(dim);
  return dense.as_strided({outer, n, inner}, {n * inner, inner, 1}, dense.offset());
}

Array apply_along(const Array& x, const AxisPlan& axis) {
  Dims sizes = x.sizes();
  sizes[axis.dim] = axis.rows.rows();
  if (x.numel() == 0) return Array::zeros(sizes, x.dtype(), x.device());
  const Array dense = x.is_dense() ? x : x.contiguous();
  const Dims order = memory_order(dense);
  const Array y = empty_in_order(order, sizes, x.dtype(), x.device());
  if (y.numel() > 0)
    kernels::apply_rows(x.device(),
                        {three_dims(y, order, axis.dim), three_dims(dense, order, axis.dim), &axis.rows});
  return y;
}

Array apply_axes(const WindowPlan& plan, const Array& x) {
  Array y = is_half(x.dtype()) ? x.to(DType::F32) : x;
  for (const AxisPlan& axis : plan.axes) y = apply_along(y, axis);
  return y.to(x.dtype());
}

// What the adjoint needs to know of the map it belongs to.
struct Applied {
  const SeparableOp* op = nullptr;
  AxisMaps maps;
  Dims sizes;    // of the map's input
  SpecPtr like;  // its spec; null: plain
};

Strategy adjoint_strategy(const SpecPtr& dy, const Applied& f) {
  const auto result_of = [&](const SpecPtr& x) {
    return without_partial(*plan_windows(x, f.maps, WindowUse::Transposed).y);
  };
  auto plan = std::make_shared<WindowPlan>(
      plan_windows(gradient_spec(f.like, *dy, f.sizes, result_of), f.maps, WindowUse::Transposed));
  Placements p = plan->y->placements();  // the gradient of every term of a sum is the whole
  for (std::size_t a = 0; a < p.size(); ++a)
    if ((plan->summed >> a & 1U) != 0) p[a] = Replicate();
  Strategy s{{with_placements(*plan->y, p)}, {plan->x}, 0};
  s.held = {f.like};
  s.extra = std::move(plan);
  return s;
}

Tensor apply_adjoint(const Tensor& dy, const Applied& f) {
  auto local = [&](LocalCall& l) {
    const auto plan = plan_of(l, f.maps, WindowUse::Transposed);
    l.out[0] = plan->buffer.give_back(apply_axes(*plan, l.in[0]));
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return adjoint_strategy(in[0], f); };
  auto gradient = [&](std::span<const Tensor>, std::span<const Tensor>) -> GradFunction {
    return [op = f.op, maps = f.maps](const BackwardContext&, const Tensors& g) {
      return Tensors{apply_separable(*op, g[0], maps)};
    };
  };
  OpCall c;
  c.op = &f.op->adjoint;
  c.inputs = {&dy, 1};
  c.output_sizes = {&f.sizes, 1};
  if (dy.is_sharded())
    c.parameters = Hash()
                       .add(static_cast<std::int64_t>(hash_of(f.maps)))
                       .add(f.sizes)
                       .add(reinterpret_cast<std::int64_t>(f.like.get()));
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace

Tensor apply_separable(const SeparableOp& op, const Tensor& x, const AxisMaps& maps) {
  if (maps.empty()) return x;
  const Dims sizes = mapped_sizes(x.sizes(), maps);
  auto local = [&](LocalCall& l) {
    const auto plan = plan_of(l, maps, WindowUse::Linear);
    l.out[0] = apply_axes(*plan, plan->buffer.fetch(l.in[0]));
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    auto made = std::make_shared<WindowPlan>(plan_windows(in[0], maps, WindowUse::Linear));
    Strategy s{{made->x}, {made->y}, 0};
    s.extra = std::move(made);
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [f = Applied{&op, maps, in[0].sizes(), in[0].spec()}](const BackwardContext&, const Tensors& g) {
      return Tensors{apply_adjoint(g[0], f)};
    };
  };
  OpCall c;
  c.op = &op.forward;
  c.inputs = {&x, 1};
  c.output_sizes = {&sizes, 1};
  if (x.is_sharded()) c.parameters = hash_of(maps);
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

}  // namespace tessera
