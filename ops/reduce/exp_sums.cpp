#include "ops/reduce/exp_sums.h"

#include <algorithm>
#include <limits>

#include "ops/cpu/exp_rows.h"
#include "ops/elementwise/array_math.h"
#include "ops/reduce/groups.h"
#include "ops/reduce/reduce_kernels.h"
#include "ops/reduce/reduction.h"
#include "runtime/kernel.h"

namespace tessera {

Kernel<void(const cpu::ExpRowsArgs&)> kernels::exp_rows{"exp_rows", &cpu::exp_rows};
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

struct LocalSums {
  Array max, shift, sum;
};

constexpr std::int64_t kFewElements = 4096;  // which are turned into rows in less time than kernels begin

// Rows that lie one after another take one kernel.
bool are_rows(const Array& x, const Dims& dims) {
  if (!x.is_contiguous() || is_half(x.dtype())) return false;
  for (int i = 0; i < dims.size(); ++i)
    if (std::find(dims.begin(), dims.end(), x.dim() - 1 - i) == dims.end()) return false;
  return true;
}

// A copy in which what is summed lies together.
Array turned_to_rows(const Array& x, const Dims& dims) {
  Dims order;
  for (int d = 0; d < x.dim(); ++d)
    if (std::find(dims.begin(), dims.end(), d) == dims.end()) order.push_back(d);
  for (const std::int64_t d : dims) order.push_back(d);
  return x.permute(order).contiguous();
}

LocalSums local_sums(const Array& given, const Dims& dims, bool sums_infinity) {
  Array x = given;
  const bool few = x.numel() <= kFewElements && !is_half(x.dtype());
  if (!are_rows(x, dims) && few) {
    x = turned_to_rows(x, dims);
  } else if (!are_rows(x, dims)) {
    const Array max = array_reduce(ReduceKind::Max, x, dims);
    const Array shift = shift_of(max, sums_infinity);
    return {max, shift, array_reduce(ReduceKind::Sum, exp_of_difference(x, shift), dims)};
  }
  const Dims sizes = reduced_sizes(given.sizes(), dims, true);
  const std::int64_t rows = numel_of(sizes);
  std::int64_t n = 1;
  for (const std::int64_t d : dims) n *= given.size(static_cast<int>(d));
  const auto number_each = [&] { return Array::empty(sizes, x.dtype(), x.device()); };
  const LocalSums s{number_each(), number_each(), number_each()};
  kernels::exp_rows(x.device(), {s.max, s.shift, s.sum, x.reshape({rows, n}), sums_infinity});
  return s;
}

}  // namespace

ExpSums exp_sums(const Array& x, const ShardSpec* spec, const Dims& dims, bool sums_infinity) {
  const auto [max, shift, sum] = local_sums(x, dims, sums_infinity);
  const unsigned mask = spec != nullptr ? cutting_axes(*spec, dims) : 0;
  if (mask == 0) return {shift, sum};
  // Rows as one dim: parts and terms are dims too, and x may have all there are.
  const Array mine = Array::empty({2, max.numel()}, x.dtype(), x.device());
  mine.slice(0, 0, 1).reshape(max.sizes()).copy_(max);
  mine.slice(0, 1, 1).reshape(max.sizes()).copy_(sum);
  const Array all = gather_over(*spec, mask, mine);
  const Array maxima = all.slice(1, 0, 1).squeeze(1);
  const Array sums = all.slice(1, 1, 1).squeeze(1);
  const Array top = shift_of(array_reduce(ReduceKind::Max, maxima, {0}), sums_infinity);
  const Array weights = exp_of_difference(maxima, top);  // 0 for a part without elements
  const Array total = array_reduce(ReduceKind::Sum, array_binary(BinaryOp::Mul, sums, weights), {0});
  return {top.reshape(max.sizes()), total.reshape(max.sizes())};
}

}  // namespace tessera
