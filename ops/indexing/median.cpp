#include <limits>

#include "autograd/node.h"
#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/indexing/indexing.h"
#include "ops/indexing/order.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/error.h"

namespace tessera {
namespace {

constexpr const char* kName = "median";

void check(const Tensor& x) {
  TS_CHECK(x.defined(), kName, "the input is undefined");
  TS_CHECK(x.dtype() != DType::Bool, kName, "masks have no middle value");
}

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

}  // namespace

std::pair<Tensor, Tensor> median(const Tensor& given, std::int64_t dim_given, bool keepdim) {
  check(given);
  const int dim = wrap_dim(kName, dim_given, given.dim());
  TS_CHECK(given.dim() == 0 || given.sizes()[dim] > 0, kName, "dim {} of {} is empty", dim,
           given.sizes().str());
  const Tensor x = with_sums_made(given);
  if (x.dim() == 0) return {x, zeros_like(to(x.detach(), DType::I64))};
  const Tensor place = place_of_middle(x.detach(), dim);
  const Tensor value = gather(x, dim, place);
  if (keepdim) return {value, place};
  return {squeeze(value, dim), squeeze(place, dim)};
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
