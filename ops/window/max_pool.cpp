#include "mesh/intervals.h"
#include "ops/memory_order.h"
#include "ops/shape/element_map.h"
#include "ops/window/max_pool_kernels.h"
#include "ops/window/pool.h"
#include "ops/window/pool_args.h"
#include "ops/window/window_args.h"
#include "ops/window/window_kernels.h"
#include "ops/window/window_plan.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::MaxPoolArgs&)> kernels::max_pool{"max_pool", &cpu::max_pool};
Kernel<void(const cpu::ScatterMaxArgs&)> kernels::scatter_max{"scatter_max", &cpu::scatter_max};
Kernel<void(const cpu::ScatterMaxArgs&)> kernels::gather_max{"gather_max", &cpu::gather_max};
namespace {

// The positions of a window that lie in the map.
void window_positions(const AxisMap& a, RowMap& map) {
  const Window& w = a.window;
  for (std::int64_t o = 0; o < a.outputs; ++o) {
    const std::int64_t begin = o * w.stride - w.pad_lo;
    for (std::int64_t k = ceil_div(std::max<std::int64_t>(0, -begin), w.dilation); k < w.kernel; ++k) {
      const std::int64_t i = begin + k * w.dilation;
      if (i >= a.inputs) break;
      map.rows.add(i, 1);
    }
    map.end_row(std::clamp<std::int64_t>(begin + (w.reach() - 1) / 2, 0, a.inputs - 1));
  }
}

// What the two maps along the indices need to know of the call that found them.
struct Pooled {
  AxisMaps maps;
  Dims sizes;    // of the pool's input
  SpecPtr like;  // its spec; null: plain
  Dims order;    // that it lay in
  std::size_t hash() const {
    return Hash()
        .add(static_cast<std::int64_t>(hash_of(maps)))
        .add(sizes)
        .add(reinterpret_cast<std::int64_t>(like.get()));
  }
};

// [N, C, spatial…] with three spatial dims, the first ones of size 1.
Array five_dims(const Array& a) {
  Array five = a;
  while (five.defined() && five.dim() < 5) five = five.unsqueeze(2);
  return five;
}

cpu::PooledMap place_of(const std::vector<AxisPlan>& axes, const AxisMaps& maps) {
  cpu::PooledMap at{Dims::filled(3, 0), Dims::filled(3, 1)};
  const auto missing = 3 - static_cast<int>(maps.size());
  for (const AxisPlan& axis : axes) at.base[axis.dim - 2 + missing] = axis.base;
  for (const AxisMap& axis : maps) at.map[axis.dim - 2 + missing] = axis.inputs;
  return at;
}

// The matrices of three spatial dims.
std::array<const cpu::SparseRows*, 3> rows_of(const std::vector<AxisPlan>& axes, const AxisMaps& maps) {
  // Never destroyed: a backend's copy belongs to it, and the backend may be gone before static variables are.
  static const cpu::SparseRows* itself = [] {
    auto* one = new cpu::SparseRows;
    one->add(0, 1);
    one->end_row();
    return one;
  }();
  std::array<const cpu::SparseRows*, 3> rows{itself, itself, itself};
  for (const AxisPlan& axis : axes) rows[static_cast<std::size_t>(axis.dim) + 1 - maps.size()] = &axis.rows;
  return rows;
}

void pool_part(const std::vector<AxisPlan>& axes, const AxisMaps& maps, const Array& x, const Array& y,
               const Array& indices) {
  kernels::max_pool(x.device(), {five_dims(y), five_dims(indices), five_dims(x), rows_of(axes, maps),
                                 place_of(axes, maps)});
}

void pool_local(LocalCall& l, const WindowPlan& plan, const AxisMaps& maps) {
  const Array& x = l.in[0];
  const bool indices = l.out.size() > 1;
  const bool parts = in_parts(plan, x);
  const Array buffer = parts ? x : plan.buffer.fetch(x);
  Dims sizes = buffer.sizes();
  for (const AxisPlan& axis : plan.axes) sizes[axis.dim] = axis.rows.rows();
  const Dims order = memory_order(x);
  for (std::size_t i = 0; i < l.out.size(); ++i)
    l.out[i] = empty_in_order(order, sizes, i == 0 ? x.dtype() : DType::I64, x.device());
  if (!parts) return pool_part(plan.axes, maps, buffer, l.out[0], indices ? l.out[1] : Array());
  each_part(plan, x, [&](const WindowPart& part, const Array& read) {
    pool_part(part.axes, maps, read, part.outputs(l.out[0]), indices ? part.outputs(l.out[1]) : Array());
  });
}

void scatter_part(const std::vector<AxisPlan>& axes, const AxisMaps& maps, const Array& buffer,
                  const Array& y, const Array& indices) {
  kernels::scatter_max(y.device(), {five_dims(buffer), five_dims(y), five_dims(indices), place_of(axes, maps),
                                    rows_of(axes, maps)});
}

// The gradient of the rank's own map.
Array scatter_local(const WindowPlan& plan, const Pooled& f, const Array& y, const Array& indices,
                    const Dims& map_sizes) {
  const Dims& order = f.order;
  if (in_parts(plan, y, map_sizes))
    return sum_of_parts(plan, order, y, [&](const WindowPart& part, const Array& buffer) {
      scatter_part(part.axes, f.maps, buffer, part.outputs(y), part.outputs(indices));
    });
  const Array values = is_half(y.dtype()) ? as_dense(y, DType::F32) : y;
  const Array buffer =
      empty_in_order(order, plan.buffer.buffer_sizes(map_sizes), values.dtype(), values.device());
  scatter_part(plan.axes, f.maps, buffer, values, indices);
  return plan.buffer.give_back(as_dense(buffer, y.dtype()));
}

void gather_part(const std::vector<AxisPlan>& axes, const AxisMaps& maps, const Array& buffer, const Array& y,
                 const Array& indices) {
  kernels::gather_max(buffer.device(), {five_dims(buffer), five_dims(y), five_dims(indices),
                                        place_of(axes, maps), rows_of(axes, maps)});
}

// The specs of both maps: of the map, of the outputs and of the indices.
Strategy along_indices(const SpecPtr& given, const Pooled& f, bool to_map) {
  const auto result_of = [&](const SpecPtr& x) {
    const WindowPlan p = plan_windows(x, f.maps, WindowUse::Select);
    return to_map ? p.y : p.x;
  };
  auto plan = std::make_shared<WindowPlan>(
      plan_windows(gradient_spec(f.like, *given, f.sizes, result_of), f.maps, WindowUse::Select));
  Strategy s{{to_map ? plan->y : plan->x, without_partial(*plan->y)}, {to_map ? plan->x : plan->y}, 0};
  s.held = {f.like};
  s.extra = std::move(plan);
  return s;
}

Tensor gather(const Tensor& x, const Tensor& indices, const Pooled& f);

// Adds every output's gradient where the output was found.
Tensor scatter(const Tensor& dy, const Tensor& indices, const Pooled& f) {
  static const OpDef op{"max_pool_backward"};
  const std::array<Tensor, 2> inputs{dy, indices};
  auto local = [&](LocalCall& l) {
    const auto plan = plan_of(l, f.maps, WindowUse::Select);
    l.out[0] = scatter_local(*plan, f, l.in[0], l.in[1], l.plan ? plan->x->local_sizes() : f.sizes);
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return along_indices(in[0], f, true); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [f, at = SavedTensor(in[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{gather(g[0], at.unpack("max_pool"), f), Tensor()};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&f.sizes, 1};
  c.parameters = f.hash();
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

Tensor gather(const Tensor& x, const Tensor& indices, const Pooled& f) {
  static const OpDef op{"max_pool_gather"};
  const std::array<Tensor, 2> inputs{x, indices};
  auto local = [&](LocalCall& l) {
    const auto plan = plan_of(l, f.maps, WindowUse::Select);
    const Array& map = l.in[0];
    const Array& at = l.in[1];
    l.out[0] = empty_in_order(memory_order(at), at.sizes(), map.dtype(), map.device());
    if (!in_parts(*plan, map)) return gather_part(plan->axes, f.maps, plan->buffer.fetch(map), l.out[0], at);
    each_part(*plan, map, [&](const WindowPart& part, const Array& read) {
      gather_part(part.axes, f.maps, read, part.outputs(l.out[0]), part.outputs(at));
    });
  };
  auto plan = [&](const std::vector<SpecPtr>& in) { return along_indices(in[0], f, false); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor>) -> GradFunction {
    return [f, at = SavedTensor(in[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{scatter(g[0], at.unpack("max_pool"), f), Tensor()};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&indices.sizes(), 1};
  c.parameters = f.hash();
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  return call_one(c);
}

// Indices are made where somebody wants them: the caller, or backward.
Tensors pool_call(const Tensor& x, const AxisMaps& maps, bool indices) {
  static const OpDef op{"max_pool"};
  const Dims size = mapped_sizes(x.sizes(), maps);
  const std::array<Dims, 2> sizes{size, size};
  auto local = [&](LocalCall& l) { pool_local(l, *plan_of(l, maps, WindowUse::Select), maps); };
  auto plan = [&](const std::vector<SpecPtr>& in) {
    auto made = std::make_shared<WindowPlan>(plan_windows(without_partial(*in[0]), maps, WindowUse::Select));
    Strategy s{{made->x}, std::vector<SpecPtr>(indices ? 2 : 1, made->y), 0};
    s.extra = std::move(made);
    return s;
  };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    return [f = Pooled{maps, in[0].sizes(), in[0].spec(), memory_order(in[0].local())},
            at = SavedTensor(out[1])](const BackwardContext&, const Tensors& g) {
      return Tensors{scatter(g[0], at.unpack("max_pool"), f)};
    };
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = std::span(sizes).first(indices ? 2 : 1);
  if (x.is_sharded())
    c.parameters = Hash().add(static_cast<std::int64_t>(hash_of(maps))).add(std::int64_t{indices});
  c.plan = plan;
  c.local = local;
  if (indices) c.gradient = gradient;
  return call(c);
}

struct Called {
  const char* op;
  int spatial;
  bool indices = false;
};
MaxPoolResult pool(const Called& f, const Tensor& x, const Dims& kernel, const MaxPoolOptions& o) {
  check_map(f.op, x, f.spatial);
  const bool batch = x.dim() == f.spatial + 2;
  const Tensor in = batch ? x : unsqueeze(x, 0);
  const AxisMaps maps = pool_axes({f.op, f.spatial, kernel, o.stride, o.padding, o.dilation, o.ceil_mode},
                                  in.sizes(), &window_positions);
  Tensors out = pool_call(in, maps, f.indices || (grad_enabled() && in.requires_grad()));
  if (!batch)
    for (Tensor& t : out) t = squeeze(t, 0);
  return {out[0], f.indices ? out[1] : Tensor()};
}

}  // namespace

Tensor max_pool1d(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool1d", 1}, x, k, o).values;
}
Tensor max_pool2d(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool2d", 2}, x, k, o).values;
}
Tensor max_pool3d(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool3d", 3}, x, k, o).values;
}
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool1d", 1, true}, x, k, o);
}
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool2d", 2, true}, x, k, o);
}
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const Dims& k, const MaxPoolOptions& o) {
  return pool({"max_pool3d", 3, true}, x, k, o);
}

}  // namespace tessera
