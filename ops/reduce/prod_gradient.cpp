#include "ops/reduce/prod_gradient.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "autograd/node.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/memory_order.h"
#include "ops/random/random.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// For every element the product of the others in its row, by division. What cannot be divided out again
// (zeros, infinities, NaN) is counted: an element has one among its others where the row has more than
// itself.
Tensor other_factors_by_division(const Tensor& x, const Dims& dims) {
  const Tensor zero = full_scalar(x, 0.0);
  const Tensor one = full_scalar(x, 1.0);
  const Tensor is_zero = eq(x, zero);
  const Tensor is_nan = ne(x, x);
  const Tensor is_infinite = eq(abs(x), full_scalar(x, kInfinity));
  const Tensor plain = where(is_zero, one, where(is_nan, one, where(is_infinite, sign(x), x)));
  const auto beside = [&](const Tensor& kind) { return ne(sum(kind, dims, true), kind); };
  const Tensor finite = where(beside(is_zero), zero, prod(plain, dims, true) / plain);
  const Tensor numbers = where(beside(is_infinite), finite * kInfinity, finite);
  return where(beside(is_nan), full_scalar(x, kNan), numbers);
}

// The same without division, so that it can be differentiated where factors are 0: elements are paired, the
// others of a pair's product times the partner are the others of an element. Along the last dim.
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

Tensor other_factors(const Tensor& x, const Dims& dims) {
  return grad_enabled() ? other_factors_by_pairs(x, dims) : other_factors_by_division(x, dims);
}

// Of complete rows each rank knows all it needs but the number of zeros.
bool holds_rows(const Tensor& x, const Dims& dims) {
  return !x.is_sharded() || (!x.spec()->has_partial() && cutting_axes(*x.spec(), dims) == 0);
}

// x, its product and the gradient of that, both with the dims as 1, and the number of zeros in all of x.
struct Factors {
  const Tensor& x;
  const Tensor& y;
  const Tensor& dy;
  const Tensor& zeros;
};
// By one kernel; not recorded. A dy that is owed is summed first, since a slope may be infinite.
Tensor worked_out(const Factors& f, const Dims& dims, bool whole) {
  static const OpDef op{"prod_gradient"};
  const Tensor inputs[] = {f.dy, f.x, f.y, f.zeros};
  auto rule = [&] {
    RuleTerm row;
    for (int d = 0; d < f.x.dim(); ++d)
      row.push_back(std::find(dims.begin(), dims.end(), d) != dims.end()
                        ? RuleDim{}
                        : RuleDim{static_cast<char>('a' + d), false, false});
    Rule made;
    made.inputs = {row, row, row, {}};
    made.outputs = {row};
    return made;
  };
  auto local = [&](LocalCall& l) {
    l.out[0] = empty_like(l.in[1], l.in[1].sizes());
    kernels::prod_gradient(l.in[1].device(), {l.out[0], l.in[1], l.in[2], l.in[0], l.in[3], whole});
  };
  OpCall c;
  c.op = &op;
  c.inputs = inputs;
  c.output_sizes = {&f.x.sizes(), 1};
  c.parameters = Hash().add(dims).add(static_cast<std::int64_t>(whole));
  c.rule = rule;
  c.local = local;
  return call_one(c);
}

}  // namespace

Kernel<void(const cpu::ProdGradientArgs&)> kernels::prod_gradient{"prod_gradient", &cpu::prod_gradient};

Tensor prod_gradient(const Tensor& x, const Tensor& y, const Tensor& dy, const Dims& dims, bool whole) {
  if (x.dim() == 0) return dy;
  if (x.numel() == 0) return dy * (y / x);
  const Tensor zero = full_scalar(x, 0.0);
  const Tensor zeros = sum(eq(x, zero));
  whole = whole && !grad_enabled();
  if (x.device() == Device::Cpu && !x.is_sharded() && zeros.item() == 0) return dy * (y / x);
  if (!grad_enabled() && holds_rows(x, dims)) return worked_out({x, y, dy, zeros}, dims, whole);
  // The host of a device does not wait for the number: both are worked out, each of 1 where the other counts,
  // so that it adds nothing, and no NaN, to second derivatives. Nor do ranks, whose messages are the same
  // everywhere.
  const Tensor some = gt(zeros, full_scalar(zeros, 0.0));
  const Tensor one = full_scalar(x, 1.0);
  const Tensor others = other_factors(where(some, x, one), dims);
  const Tensor taken = dy * where(some, others, where(some, one, y) / where(some, one, x));
  return whole ? where(gt(zeros, full_scalar(zeros, 1.0)), zero, taken) : taken;
}

}  // namespace tessera
