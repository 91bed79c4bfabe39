#include "ops/window/separable.h"

#include "ops/memory_order.h"
#include "ops/shape/element_map.h"
#include "ops/window/window_kernels.h"
#include "ops/window/window_plan.h"
#include "runtime/copy.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::ApplyRowsArgs&)> kernels::apply_rows{"apply_rows", &cpu::apply_rows};
Kernel<void(const cpu::ApplyTwoRowsArgs&)> kernels::apply_two_rows{"apply_two_rows", &cpu::apply_two_rows};
namespace {

// A dense array as [outer, size of every dim from `first` to `last`, inner], in memory order.
Array seen_along(const Array& dense, const Dims& order, std::int64_t first, std::int64_t last) {
  Dims sizes{1};
  std::int64_t inner = 1;
  bool before = true;
  bool after = false;
  for (const std::int64_t dim : order) {
    const std::int64_t n = dense.size(static_cast<int>(dim));
    before = before && dim != first;
    if (before) {
      sizes[0] *= n;
    } else if (after) {
      inner *= n;
    } else {
      sizes.push_back(n);
    }
    after = after || dim == last;
  }
  sizes.push_back(inner);
  return dense.as_strided(sizes, contiguous_strides(sizes), dense.offset());
}

// Whether two axes follow each other in memory.
bool adjoin(const Dims& order, const AxisPlan& a, const AxisPlan& b) {
  const auto* at = std::find(order.begin(), order.end(), a.dim);
  return at + 1 < order.end() && at[1] == b.dim;
}

// Along one axis, or along two that adjoin (`second`). Both arrays are dense in `order`.
void apply_along(const Array& y, const Array& dense, const Dims& order, const AxisPlan& axis,
                 const AxisPlan* second) {
  if (dense.numel() == 0) Array(y).zero_();
  if (dense.numel() == 0 || y.numel() == 0) return;
  const int last = second != nullptr ? second->dim : axis.dim;
  const Array to = seen_along(y, order, axis.dim, last);
  const Array from = seen_along(dense, order, axis.dim, last);
  if (second != nullptr) {
    kernels::apply_two_rows(y.device(), {to, from, &axis.rows, &second->rows});
  } else {
    kernels::apply_rows(y.device(), {to, from, &axis.rows});
  }
}

// What comes out of `axes`, dense in `order`.
Array empty_result(std::span<const AxisPlan> axes, const Array& x, const Dims& order) {
  Dims sizes = x.sizes();
  for (const AxisPlan& axis : axes) sizes[axis.dim] = axis.rows.rows();
  return empty_in_order(order, sizes, x.dtype(), x.device());
}

// The last two axes in one go where memory allows it: what lies between them is not written.
// Both arrays are dense in `order`.
void apply_axes(const Array& y, const std::vector<AxisPlan>& axes, const Array& dense, const Dims& order) {
  Array at = dense;
  for (std::span<const AxisPlan> left = axes; !left.empty();) {
    const bool pair = left.size() == 2 && adjoin(order, left[0], left[1]);
    const std::size_t now = pair ? 2 : 1;
    const Array to = now == left.size() ? y : empty_result(left.first(1), at, order);
    apply_along(to, at, order, left[0], pair ? &left[1] : nullptr);
    at = to;
    left = left.subspan(now);
  }
}
Array apply_axes(const std::vector<AxisPlan>& axes, const Array& x) {
  const Array dense = as_dense(x, is_half(x.dtype()) ? DType::F32 : x.dtype());
  const Dims order = memory_order(dense);
  const Array y = empty_result(axes, dense, order);
  apply_axes(y, axes, dense, order);
  return as_dense(y, x.dtype());
}

// Sums of halves are rounded once: not term by term.
bool in_terms(const WindowPlan& plan, const Array& x) {
  return plan.terms.used && x.numel() >= frames_from() && !is_half(x.dtype());
}

Array apply_terms(const WindowPlan& plan, const Array& x) {
  const auto& [exchange, comm] = *plan.buffer.map();
  const Array arrivals = empty_arrivals(exchange, x);
  ExchangeInFlight halo = start_arrivals(exchange, comm, arrivals, x, message_order(x.dim()));
  Array y = apply_axes(plan.terms.own, x);
  halo.finish();
  for (const WindowTerm& term : plan.terms.arriving)
    add_into(y.box(term.out_from, term.out_extent), apply_axes(term.axes, box_of(arrivals, term.box)));
  return y;
}

// What goes to others first, so that it is on its way meanwhile.
Array apply_terms_back(const WindowPlan& plan, const Array& dy) {
  const auto& [exchange, comm] = *plan.buffer.map();
  const Array arrivals = empty_arrivals(exchange, dy);
  for (const WindowTerm& term : plan.terms.arriving)
    copy_strided(box_of(arrivals, term.box), apply_axes(term.axes, dy.box(term.out_from, term.out_extent)));
  const Array dense = as_dense(dy);
  const Dims order = memory_order(dense);
  Array dx = empty_result(plan.terms.own, dense, order);
  ExchangeInFlight halo = start_returns(exchange, comm, dx, arrivals, message_order(dy.dim()));
  apply_axes(dx, plan.terms.own, dense, order);
  halo.finish();
  return dx;
}

// What the adjoint needs to know of the map it belongs to.
struct Applied {
  const SeparableOp* op = nullptr;
  AxisMaps maps;
  Dims sizes;    // of the map's input
  SpecPtr like;  // its spec; null: plain
  Dims order;    // that it lay in
};

bool is_row_major(const Dims& order) { return std::is_sorted(order.begin(), order.end()); }

Array turned(const Array& a, const Dims& order) {
  const Array out = empty_in_order(order, a.sizes(), a.dtype(), a.device());
  copy_strided(out, a);
  return out;
}

Array adjoint_local(const WindowPlan& plan, const Array& dy) {
  return in_terms(plan, dy) ? apply_terms_back(plan, dy) : plan.buffer.give_back(apply_axes(plan.axes, dy));
}

// The gradient of a map that did not lie row by row lies as the map did: the smaller of dy and dx is turned
// round, or dy where it has to be written out in any case.
Array adjoint_in_order(const WindowPlan& plan, const Array& dy, const Dims& order) {
  if (is_row_major(order)) return adjoint_local(plan, dy);
  double growth = 1;
  for (const AxisPlan& axis : plan.axes) growth *= axis.growth;
  const bool turns = is_row_major(memory_order(dy)) && (growth > 1 || is_expanded(dy));
  const Array dx = adjoint_local(plan, turns ? turned(dy, order) : dy);
  // Also where dims of size 1 hide the order that dy has.
  return is_row_major(memory_order(dx)) ? turned(dx, order) : dx;
}

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
    l.out[0] = adjoint_in_order(*plan, l.in[0], f.order);
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
    l.out[0] = in_terms(*plan, l.in[0]) ? apply_terms(*plan, l.in[0])
                                        : apply_axes(plan->axes, plan->buffer.fetch(l.in[0]));
  };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    auto made = std::make_shared<WindowPlan>(plan_windows(in[0], maps, WindowUse::Linear));
    Strategy s{{made->x}, {made->y}, 0};
    s.extra = std::move(made);
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [f = Applied{&op, maps, in[0].sizes(), in[0].spec(), memory_order(in[0].local())}](
               const BackwardContext&, const Tensors& g) { return Tensors{apply_adjoint(g[0], f)}; };
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
