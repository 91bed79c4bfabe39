// Numbers in the place of tensors, and what is composed of other functions.
#include <cmath>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/elementwise/pointwise_call.h"

namespace tessera {
std::pair<Tensor, Tensor> beside_number(const char* op, const Tensor& x, double number) {
  TS_CHECK(x.defined(), op, "an input is undefined");
  DType dtype = x.dtype();
  if (!is_floating(dtype)) {
    if (dtype == DType::Bool) dtype = DType::I64;
    if (number != std::floor(number) || !fits_integer(dtype, number)) dtype = DType::F32;
  }
  const Tensor y = to(x, dtype);
  return {y, full_scalar(y, number)};
}

Tensor cast_to_floating(const char* op, const Tensor& x, DType dtype) {
  TS_CHECK(x.defined(), op, "the input is undefined");
  TS_CHECK(is_floating(dtype), op, "dtype {} given; it must be a floating one", name_of(dtype));
  return to(x, dtype);
}

#define TS_COMPARISON(function)                         \
  Tensor function(const Tensor& a, double b) {          \
    const auto [x, y] = beside_number(#function, a, b); \
    return function(x, y);                              \
  }

TS_COMPARISON(eq)
TS_COMPARISON(ne)
TS_COMPARISON(lt)
TS_COMPARISON(le)
TS_COMPARISON(gt)
TS_COMPARISON(ge)

#undef TS_COMPARISON

namespace {

// Before a cast sends anything.
void check_where(const Tensor& condition, const Tensor& x) {
  TS_CHECK(condition.defined() && x.defined(), "where", "an input is undefined");
  check_together("where", {&condition, &x});
  TS_CHECK(condition.dtype() == DType::Bool, "where", "the condition must be bool, given {}",
           name_of(condition.dtype()));
  broadcast_sizes("where", condition.sizes(), x.sizes());
}

}  // namespace

Tensor where(const Tensor& condition, const Tensor& a, double b) {
  check_where(condition, a);
  const auto [x, y] = beside_number("where", a, b);
  return where(condition, x, y);
}

Tensor where(const Tensor& condition, double a, const Tensor& b) {
  check_where(condition, b);
  const auto [x, y] = beside_number("where", b, a);
  return where(condition, y, x);
}

Tensor scaled_softplus(const Tensor& given, double beta, double threshold) {
  TS_CHECK(is_floating(given.dtype()), "softplus", "needs a floating tensor, given {}",
           name_of(given.dtype()));
  const Tensor x = with_sums_made(given);
  const Tensor z = affine(x, beta, 0.0);
  Tensor y = softplus(z);
  // The kernel gives z itself above 20: log(1 + exp(z)) less log(1 + exp(-z)).
  if (threshold > 20.0) y = where(gt(z, 20.0), z + softplus(-z), y);
  return where(gt(z, threshold), x, affine(y, 1.0 / beta, 0.0));
}

}  // namespace tessera
