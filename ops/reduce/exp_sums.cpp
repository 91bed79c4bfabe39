#include "ops/reduce/exp_sums.h"

#include <limits>

#include "ops/elementwise/array_math.h"
#include "ops/reduce/groups.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::ReduceKind;
using cpu::UnaryOp;

Array exp_of_difference(const Array& a, const Array& b) {
  return array_unary(UnaryOp::Exp, array_binary(BinaryOp::Sub, a, b));
}

// What is subtracted before the exponential is taken: not an infinite value, which would leave NaN.
Array shift_of(const Array& max, bool sums_infinity) {
  const double inf = std::numeric_limits<double>::infinity();
  const Array finite_below = array_replace(max, -inf, 0.0);
  return sums_infinity ? array_replace(finite_below, inf, 0.0) : finite_below;
}

}  // namespace

ExpSums exp_sums(const Array& x, const ShardSpec* spec, const Dims& dims, bool sums_infinity) {
  const Array max = array_reduce(ReduceKind::Max, x, dims);
  const Array shift = shift_of(max, sums_infinity);
  const Array sum = array_reduce(ReduceKind::Sum, exp_of_difference(x, shift), dims);
  const unsigned mask = spec != nullptr ? cutting_axes(*spec, dims) : 0;
  if (mask == 0) return {shift, sum};
  Dims both = max.sizes();
  both.insert(0, 2);
  const Array mine = Array::empty(both, x.dtype(), x.device());
  mine.slice(0, 0, 1).reshape(max.sizes()).copy_(max);
  mine.slice(0, 1, 1).reshape(max.sizes()).copy_(sum);
  const Array all = gather_over(*spec, mask, mine);
  const Array maxima = all.slice(1, 0, 1).squeeze(1);
  const Array sums = all.slice(1, 1, 1).squeeze(1);
  const Array top = shift_of(array_reduce(ReduceKind::Max, maxima, {0}), sums_infinity);
  const Array weights = exp_of_difference(maxima, top);  // 0 for a part without elements
  const Array total = array_reduce(ReduceKind::Sum, array_binary(BinaryOp::Mul, sums, weights), {0});
  return {top.squeeze(0), total.squeeze(0)};
}

}  // namespace tessera
