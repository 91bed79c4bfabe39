#include "ops/reduce/prod_gradient.h"

#include <algorithm>
#include <array>
#include <vector>

#include "autograd/node.h"
#include "mesh/mesh_state.h"
#include "ops/elementwise/array_math.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/random/random.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/reduction_backward.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

// For every element the product of the others in its row without division, so that it can be differentiated
// where factors are 0: elements are paired, the others of a pair's product times the partner are the others
// of an element. Along the last dim.
Tensor others_of_pairs(const Tensor& x) {
  const std::int64_t n = x.size(-1);
  if (n == 1) return ones_like(x);
  const Tensor even = slice(x, -1, 0, INT64_MAX, 2);
  const Tensor odd = slice(x, -1, 1, INT64_MAX, 2);
  const Tensor partners = n % 2 == 0 ? odd : pad(odd, {0, 1}, PadMode::Constant, 1.0);
  const Tensor others = others_of_pairs(even * partners);
  const Tensor both = stack({others * partners, others * even}, -1);
  return slice(flatten(both, -2, -1), -1, 0, n);
}

Tensor other_factors_by_pairs(const Tensor& x, const Dims& dims) {
  std::vector<std::int64_t> order;
  for (int d = 0; d < x.dim(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  order.insert(order.end(), dims.begin(), dims.end());
  const Tensor moved = permute(x, Dims(order));
  const Tensor rows = flatten(moved, x.dim() - dims.size(), -1);
  // Pairs need a dim.
  const Tensor fewer = rows.dim() < Dims::kMax ? rows : flatten(rows, 0, 1);
  const Tensor others = reshape(others_of_pairs(fewer), moved.sizes());
  Dims back = Dims::filled(x.dim(), 0);
  for (int d = 0; d < x.dim(); ++d) back[static_cast<int>(order[static_cast<std::size_t>(d)])] = d;
  return permute(others, back);
}

// How many there are in all of x: a sum that is owed along the axes that cut it.
Tensor zeros_in(const Tensor& x) {
  static const OpDef op{"count_zeros"};
  const Dims number{};
  auto rule = [&] {
    Rule made = broadcast_rule({&x, 1}, x.sizes(), Linearity::None);
    made.outputs.front().clear();
    return made;
  };
  auto local = [&](LocalCall& l) {
    const Array& in = l.in[0];
    const Array zero = Array::full({}, 0.0, in.dtype(), in.device()).expand(in.sizes());
    const Array found = Array::empty(in.sizes(), DType::Bool, in.device());
    kernels::binary(in.device(), {found, in, zero, cpu::BinaryOp::Eq});
    const Array count = Array::empty(Dims::filled(in.dim(), 1), DType::I64, in.device());
    kernels::reduce(in.device(), {count, found, cpu::ReduceKind::Sum});
    l.out[0] = count.reshape({});
  };
  OpCall c;
  c.op = &op;
  c.inputs = {&x, 1};
  c.output_sizes = {&number, 1};
  c.rule = rule;
  c.local = local;
  return call_one(c);
}

// What the other ranks that hold parts of x's rows have as the products of theirs; undefined: there are none.
Array product_elsewhere(const Array& x, const ShardSpec* spec, const Dims& dims) {
  const unsigned mask = spec == nullptr ? 0 : cutting_axes(*spec, dims);
  if (mask == 0) return {};
  const Communicator& group = spec->mesh_core()->groups[mask];
  if (group.size() == 1) return {};
  const Array own = array_reduce(cpu::ReduceKind::Product, x.to(DType::F64), dims);
  const Array all = gather_over(*spec, mask, own.reshape({own.numel()}));
  all.slice(0, group.rank(), 1).fill_(1.0);
  return array_reduce(cpu::ReduceKind::Product, all, {0}).reshape(own.sizes());
}

// x, its product and the gradient of that.
struct Factors {
  const Tensor& x;
  const Tensor& y;
  const Tensor& dy;
};
// By one kernel; not recorded. Of rows that are cut it is told what the other ranks have, the same on a CPU
// as on a device, whose host does not hear of the zeros beside which that counts.
Tensor worked_out(const Factors& f, const CompleteReduction& r, bool whole) {
  const std::array of_result{f.dy, f.y, zeros_in(f.x)};
  return reduction_backward(r, f.x, of_result, [&](const ReducedArrays& a) {
    const Array dx = empty_like(a.x, a.x.sizes());
    const Array y = a.others[0].contiguous();
    const Array& zeros = a.others[1];
    const Array rest = product_elsewhere(a.x, a.spec, r.dims);
    if (a.x.device() == Device::Cpu && *zeros.data<std::int64_t>() == 0) {  // two passes of vector code
      kernels::binary(Device::Cpu, {dx, y.expand(dx.sizes()), a.x, cpu::BinaryOp::Div});
      kernels::binary(Device::Cpu, {dx, a.dy.expand(dx.sizes()), dx, cpu::BinaryOp::Mul});
      return dx;
    }
    kernels::prod_gradient(a.x.device(), {dx, a.x, y, a.dy, zeros, whole, rest});
    return dx;
  });
}

// Of recorded passes, y and dy with the dims as 1.
Tensor prod_gradient_composed(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims) {
  if (x.dim() == 0) return dy;
  if (x.numel() == 0) return dy * (y / x);
  const Tensor zero = full_scalar(x, 0.0);
  const Tensor zeros = sum(eq(x, zero));
  if (x.device() == Device::Cpu && !x.is_sharded() && zeros.item() == 0) return dy * (y / x);
  // The host of a device does not wait for the number: both are worked out, each of 1 where the other counts,
  // so that it adds nothing, and no NaN, to second derivatives. Nor do ranks, whose messages are the same
  // everywhere.
  const Tensor some = gt(zeros, full_scalar(zeros, 0.0));
  const Tensor one = full_scalar(x, 1.0);
  const Tensor others = other_factors_by_pairs(where(some, x, one), dims);
  return dy * where(some, others, where(some, one, y) / where(some, one, x));
}

}  // namespace

Kernel<void(const cpu::ProdGradientArgs&)> kernels::prod_gradient{"prod_gradient", &cpu::prod_gradient};

Tensor prod_gradient(const CompleteReduction& r, const Tensor& x, const Tensor& y, const Tensor& dy,
                     bool whole) {
  static const OpDef op{"prod_gradient"};
  if (!grad_enabled() && x.dim() > 0 && x.numel() > 0)
    return worked_out({x, y, dy}, {&op, r.dims, r.keepdim}, whole);
  const Tensor kept_y = with_kept_dims(y, x.sizes(), r.dims);
  const Tensor kept_dy = with_kept_dims(dy, x.sizes(), r.dims);
  return prod_gradient_composed(x, kept_y, kept_dy, r.dims);
}

}  // namespace tessera
