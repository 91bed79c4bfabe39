#include <limits>

#include "autograd/node.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/indexing/indexing.h"
#include "ops/indexing/kernels.h"
#include "ops/indexing/order.h"
#include "ops/indexing/take.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

const OpDef kMedian{"median"};
constexpr const char* kName = "median";

void check(const Tensor& x) {
  TS_CHECK(x.defined(), kName, "the input is undefined");
  TS_CHECK(x.dtype() != DType::Bool, kName, "takes floating and integer tensors, given {}",
           name_of(x.dtype()));
}

using Pair = std::pair<Tensor, Tensor>;

// Of the middle value along `dim`, which is kept with size 1.
Tensor place_of_middle(const Tensor& x, int dim) {
  const NoGrad guard;
  const std::int64_t n = x.sizes()[dim];
  const auto [values, numbers] = sort(x, dim);
  Tensor middle = slice(numbers, dim, (n - 1) / 2, (n - 1) / 2 + 1);
  if (!is_floating(x.dtype())) return middle;
  const Tensor last = slice(values, dim, n - 1, n);  // NaN comes last
  return where(ne(last, last), argmax(x, dim, true), middle);
}

// Of a dim that is cut: what a sort sends.
Pair by_sorting(const Tensor& x, int dim, bool keepdim) {
  const Tensor place = place_of_middle(x.detach(), dim);
  const Tensor value = gather(x, dim, place);
  if (keepdim) return {value, place};
  return {squeeze(value, dim), squeeze(place, dim)};
}

Dims without_dim(Dims sizes, int dim, bool keepdim) {
  if (keepdim) {
    sizes[dim] = 1;
  } else {
    sizes.erase(dim);
  }
  return sizes;
}

// All dims are free but `dim`, which is whole.
Rule whole_dim_rule(int dims, int dim, bool keepdim) {
  RuleTerm x;
  RuleTerm y;
  for (int d = 0; d < dims; ++d) {
    const auto letter = static_cast<char>('a' + d);
    x.push_back({letter, false, d == dim});
    if (d != dim) y.push_back({letter, false, false});
    if (d == dim && keepdim) y.push_back({});
  }
  Rule r;
  r.inputs = {x};
  r.outputs = {y, y};
  return r;
}

void median_local(LocalCall& l, int dim, bool keepdim) {
  const Array& x = l.in[0];
  const Dims sizes = without_dim(x.sizes(), dim, keepdim);
  l.out[0] = Array::empty(sizes, x.dtype(), x.device());
  l.out[1] = Array::empty(sizes, DType::I64, x.device());
  if (l.out[0].numel() == 0) return;
  std::int64_t outer = 1;
  for (int d = 0; d < dim; ++d) outer *= x.size(d);
  const std::int64_t inner = l.out[0].numel() / outer;
  kernels::median(x.device(), {l.out[0].reshape({outer, inner}), l.out[1].reshape({outer, inner}),
                               x.contiguous().reshape({outer, x.size(dim), inner})});
}

Pair of_whole_dim(const Tensor& x, int dim, bool keepdim) {
  const Dims size = without_dim(x.sizes(), dim, keepdim);
  const std::array<Dims, 2> sizes{size, size};
  auto local = [&](LocalCall& l) { median_local(l, dim, keepdim); };
  auto rule = [&] { return whole_dim_rule(x.dim(), dim, keepdim); };
  auto gradient = [&](std::span<const Tensor> in, std::span<const Tensor> out) -> GradFunction {
    return [dim, keepdim, target = PutTarget{in[0].sizes()[dim], in[0].spec()}, places = SavedTensor(out[1])](
               const BackwardContext&, const Tensors& g) {
      static const OpDef op{"index_put"};
      const auto with_dim = [&](const Tensor& t) { return keepdim ? t : unsqueeze(t, dim); };
      const Picking picking{.dim = dim, .elements = true, .checked = true};
      return Tensors{put(op, picking, with_dim(g[0]), with_dim(places.unpack(kName)), target)};
    };
  };
  OpCall c;
  c.op = &kMedian;
  c.inputs = {&x, 1};
  c.output_sizes = sizes;
  c.parameters = Hash().add(std::int64_t{dim}).add(static_cast<std::int64_t>(keepdim));
  c.rule = rule;
  c.local = local;
  c.gradient = gradient;
  Tensors out = call(c);
  return {std::move(out[0]), std::move(out[1])};
}

}  // namespace

std::pair<Tensor, Tensor> median(const Tensor& given, std::int64_t dim_given, bool keepdim) {
  check(given);
  const int dim = wrap_dim(kName, dim_given, given.dim());
  TS_CHECK(given.dim() == 0 || given.sizes()[dim] > 0, kName, "dim {} of {} is empty", dim,
           given.sizes().str());
  const Tensor x = with_sums_made(given);
  if (x.dim() == 0) return {x, zeros_like(to(x.detach(), DType::I64))};
  const bool cut = x.is_sharded() && x.spec()->cut(dim);
  return cut ? by_sorting(x, dim, keepdim) : of_whole_dim(x, dim, keepdim);
}

Tensor median(const Tensor& given) {
  check(given);
  const Tensor x = with_sums_made(given);
  if (x.numel() == 0) {
    TS_CHECK(is_floating(x.dtype()), kName, "nothing has no middle value in {}", name_of(x.dtype()));
    return sum(x) + std::numeric_limits<double>::quiet_NaN();
  }
  Tensor value = median(reshape(x.detach(), {-1}), 0).first;
  record_simple(kName, {&x, 1}, {&value, 1},
                [saved = SavedTensor(x), middle = value.detach()](const BackwardContext&, const Tensors& g) {
                  const Tensor all = saved.unpack(kName);
                  const Tensor alike = where(ne(middle, middle), to(ne(all, all), all.dtype()),
                                             to(eq(all, middle), all.dtype()));
                  return Tensors{alike * (g[0] / sum(alike))};
                });
  return value;
}

}  // namespace tessera
