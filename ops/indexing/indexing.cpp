#include "ops/indexing/indexing.h"

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/indexing/take.h"
#include "ops/random/random.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"
#include "runtime/checked_sizes.h"

namespace tessera {
namespace {

void check_inputs(const char* op, const Tensor& x, const Tensor& index) {
  TS_CHECK(x.defined() && index.defined(), op, "an input is undefined");
  TS_CHECK(index.dtype() == DType::I64 || index.dtype() == DType::I32, op,
           "the index must be i64 or i32, given {}", name_of(index.dtype()));
}

Tensor with_a_dim(const Tensor& t) { return t.dim() == 0 ? reshape(t, {1}) : t; }

// The first elements of every dim but one, as many as `sizes` has.
Tensor cropped(const Tensor& x, const Dims& sizes, int but) {
  Tensor y = x;
  for (int d = 0; d < x.dim(); ++d)
    if (d != but) y = slice(y, d, 0, sizes[d]);
  return y;
}

void check_fits(const char* op, const Tensor& index, const Tensor& other, int but) {
  bool fits = index.dim() == other.dim();
  for (int d = 0; fits && d < index.dim(); ++d) fits = d == but || index.sizes()[d] <= other.sizes()[d];
  TS_CHECK(fits, op, "the index {} must have as many dims as {} and be no larger{}", index.sizes().str(),
           other.sizes().str(), but < 0 ? "" : fmt::format(", apart from dim {}", but));
}

Tensor gather_as(const OpDef& op, Picking picking, const Tensor& given, const Tensor& index) {
  const int dim = picking.dim;
  picking.elements = true;
  const Tensor x = with_a_dim(given);
  const Tensor numbers = with_a_dim(index);
  if (index.numel() == 0) {  // of any shape, as in PyTorch
    const Tensor nothing = slice(x, dim, 0, 0);
    return reshape(nothing, index.sizes());
  }
  check_fits(op.name, numbers, x, dim);
  const Tensor y = take(op, picking, cropped(x, numbers.sizes(), dim), numbers);
  return index.dim() == 0 ? reshape(y, {}) : y;
}

}  // namespace

Tensor index_select(const Tensor& x, std::int64_t dim_given, const Tensor& index) {
  static const OpDef op{"index_select"};
  check_inputs(op.name, x, index);
  TS_CHECK(index.dim() <= 1, op.name, "the index must have one dim or none, given {}", index.sizes().str());
  const int dim = wrap_dim(op.name, dim_given, x.dim());
  TS_CHECK(x.dim() > 0 || index.numel() == 1, op.name, "of a 0-dim tensor one row can be taken, given {}",
           index.numel());
  const Tensor y = take(op, {dim}, with_a_dim(x), with_a_dim(index));
  return x.dim() == 0 ? reshape(y, {}) : y;
}

Tensor gather(const Tensor& x, std::int64_t dim, const Tensor& index) {
  static const OpDef op{"gather"};
  check_inputs(op.name, x, index);
  return gather_as(op, {wrap_dim(op.name, dim, x.dim())}, x, index);
}

Tensor scatter_add(const Tensor& given, std::int64_t dim_given, const Tensor& index, const Tensor& src) {
  static const OpDef op{"scatter_add"};
  check_inputs(op.name, given, index);
  TS_CHECK(src.defined() && src.dtype() == given.dtype(), op.name,
           "x is {}, src {}; they must be of one type", name_of(given.dtype()),
           src.defined() ? name_of(src.dtype()) : "undefined");
  const int dim = wrap_dim(op.name, dim_given, given.dim());
  if (index.numel() == 0) return given;
  const Tensor x = with_a_dim(given);
  const Tensor numbers = with_a_dim(index);
  const Tensor terms = with_a_dim(src);
  check_fits(op.name, numbers, x, dim);
  check_fits(op.name, numbers, terms, -1);
  const Dims& sizes = numbers.sizes();
  const Tensor sums = put(op, {dim, true}, cropped(terms, sizes, -1), numbers,
                          {x.sizes()[dim], cropped(x.detach(), sizes, dim).spec()});
  std::vector<std::int64_t> rest;  // what the index does not reach
  for (int d = x.dim() - 1; d >= 0; --d) {
    rest.push_back(0);
    rest.push_back(d == dim ? 0 : x.sizes()[d] - sizes[d]);
  }
  const Tensor y = x + pad(sums, rest);
  return given.dim() == 0 ? reshape(y, {}) : y;
}

Tensor take_along_dim(const Tensor& x, const Tensor& index, std::int64_t dim_given) {
  static const OpDef op{"take_along_dim"};
  check_inputs(op.name, x, index);
  TS_CHECK(x.dim() == index.dim(), op.name, "x has {} dims, the index {}", x.dim(), index.dim());
  const Picking picking{.dim = wrap_dim(op.name, dim_given, x.dim()), .from_end = true};
  const int dim = picking.dim;
  Dims x_sizes = x.sizes();
  Dims index_sizes = index.sizes();
  if (x.dim() > 0) x_sizes[dim] = index_sizes[dim] = 1;
  if (x_sizes == index_sizes) return gather_as(op, picking, x, index);
  Dims both = broadcast_sizes(op.name, x_sizes, index_sizes);
  const auto widened = [&](const Tensor& t) {
    both[dim] = t.sizes()[dim];
    return expand(t, both);
  };
  return gather_as(op, picking, widened(x), widened(index));
}

Tensor take_along_dim(const Tensor& x, const Tensor& index) {
  check_inputs("take_along_dim", x, index);
  return take_along_dim(reshape(x, {-1}), reshape(index, {-1}), 0);
}

Tensor one_hot(const Tensor& index, std::int64_t num_classes) {
  static const OpDef op{"one_hot"};
  TS_CHECK(index.defined() && index.dtype() == DType::I64, op.name, "the index must be i64, given {}",
           index.defined() ? name_of(index.dtype()) : "an undefined tensor");
  TS_CHECK(num_classes >= -1, op.name, "num_classes {} given; -1 or more is allowed", num_classes);
  TS_CHECK(num_classes >= 0 || index.numel() > 0, op.name,
           "an empty index {} does not tell how many classes there are, num_classes must",
           index.sizes().str());
  if (num_classes < 0)
    num_classes = std::max<std::int64_t>(0, static_cast<std::int64_t>(amax(index).item()) + 1);
  Dims sizes = index.sizes();
  sizes.push_back(num_classes);
  check_storable(op.name, sizes, DType::I64);
  const Tensor numbers = unsqueeze(index, -1);
  return put(op, {index.dim(), true}, ones_like(numbers), numbers, {num_classes, nullptr});
}

Tensor masked_fill(const Tensor& x, const Tensor& mask, double value) {
  TS_CHECK(x.defined(), "masked_fill", "the input is undefined");
  TS_CHECK(mask.defined() && mask.dtype() == DType::Bool, "masked_fill", "the mask must be bool, given {}",
           mask.defined() ? name_of(mask.dtype()) : "an undefined tensor");
  check_together("masked_fill", {&x, &mask});
  broadcast_sizes("masked_fill", x.sizes(), mask.sizes());
  return where(mask, full_scalar(x, value), x);
}

}  // namespace tessera
