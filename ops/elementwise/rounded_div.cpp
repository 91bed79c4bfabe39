// Quotients rounded to whole numbers. Where PyTorch takes a remainder, quotients are formed that are exact
// enough here: of F32 and halves in F64, of F64 with a correction.
#include <limits>

#include "ops/elementwise/elementwise.h"
#include "ops/elementwise/owed_terms.h"
#include "ops/elementwise/pointwise_call.h"
#include "ops/reduce/reduce.h"

namespace tessera {
namespace {

using cpu::BinaryOp;
using cpu::UnaryOp;
using Mode = RoundingMode;

const OpDef kDiv{"div"};

// a / b, of which no gradient is asked but zeros: what comes in is zeros.
Tensor flat_quotient(const Tensor& a, const Tensor& b) {
  return call_binary({&kDiv, BinaryOp::Div}, a, b, [](const Tensor& x, const Tensor& y) -> GradFunction {
    return [size_a = x.sizes(), size_b = y.sizes()](const BackwardContext& c, const Tensors& g) {
      return Tensors{c.needs(0) ? sum_to_size(g[0], size_a) : Tensor(),
                     c.needs(1) ? sum_to_size(g[0], size_b) : Tensor()};
    };
  });
}

Tensor rounded(UnaryOp kernel, const Tensor& x) {
  return call_unary({&kDiv, kernel}, x, [](const Tensor&, const Tensor&) -> GradFunction {
    return [](const BackwardContext&, const Tensors& g) { return Tensors{affine(g[0], 0.0, 0.0)}; };
  });
}

Tensor both(const Tensor& a, const Tensor& b) { return mul(a, b); }  // of truth values
Tensor signs_differ(const Tensor& a, const Tensor& b) { return ne(lt(a, 0.0), lt(b, 0.0)); }

Tensor of_integers(const Tensor& a, const Tensor& b, Mode mode) {
  const Tensor by_zero = eq(b, 0.0);
  Tensor q = where(by_zero, -1.0, flat_quotient(a, where(by_zero, 1.0, b)));
  if (mode == Mode::Trunc) return q;
  const Tensor rest = a - q * b;
  const Tensor above = both(both(ne(rest, 0.0), signs_differ(rest, b)), ne(b, 0.0));
  return q - to(above, q.dtype());
}

// x as the sum of two numbers of half as many digits (Veltkamp).
std::pair<Tensor, Tensor> halves(const Tensor& x) {
  const Tensor scaled = x * 134217729.0;  // 2^27 + 1
  const Tensor high = scaled - (scaled - x);
  return {high, x - high};
}

// Whether a quotient that is whole was rounded up to be so: whether a < q b, with the product in twice the
// digits (Dekker).
Tensor rounded_up(const Tensor& a, const Tensor& b, const Tensor& q) {
  const Tensor product = q * b;
  const auto [qh, ql] = halves(q);
  const auto [bh, bl] = halves(b);
  const Tensor error = ((qh * bh - product) + qh * bl + ql * bh) + ql * bl;
  const Tensor rest = (a - product) - error;
  return both(ne(rest, 0.0), signs_differ(rest, b));
}

// `exact`: of F64 operands as they were given.
Tensor floor_of(const Tensor& a, const Tensor& b, bool exact) {
  const Tensor quotient = flat_quotient(a, b);
  const Tensor y = rounded(UnaryOp::Floor, quotient);
  const Tensor x = a.detach();
  const Tensor d = b.detach();
  const Tensor q = quotient.detach();
  // Nothing, for a quotient under 0 that is too small to be told from it; or one too many.
  Tensor less = both(eq(q, 0.0), both(ne(x, 0.0), signs_differ(x, d)));
  if (exact) less = maximum(less, both(eq(q, y.detach()), rounded_up(x, d, q)));
  const Tensor endless = both(eq(abs(x), std::numeric_limits<double>::infinity()), ne(d, 0.0));
  return where(endless, std::numeric_limits<double>::quiet_NaN(), where(less, y.detach() - 1.0, y));
}

Tensor trunc_of(const Tensor& a, const Tensor& b) {
  const Tensor q = flat_quotient(a, b);
  return where(lt(q.detach(), 0.0), rounded(UnaryOp::Ceil, q), rounded(UnaryOp::Floor, q));
}

Tensor of_floats(const Tensor& a, const Tensor& b, Mode mode) {
  if (mode == Mode::Trunc) return trunc_of(a, b);
  const DType dtype = a.dtype();
  return to(floor_of(to(a, DType::F64), to(b, DType::F64), dtype == DType::F64), dtype);
}

}  // namespace

Tensor div(const Tensor& a, const Tensor& b, RoundingMode rounding_mode) {
  if (rounding_mode == Mode::None) return div(a, b);
  TS_CHECK(a.defined() && b.defined(), kDiv.name, "an input is undefined");
  check_together(kDiv.name, {&a, &b});
  TS_CHECK(a.dtype() != DType::Bool || b.dtype() != DType::Bool, kDiv.name,
           "with rounding takes floating and integer tensors, given two of bool");
  broadcast_sizes(kDiv.name, a.sizes(), b.sizes());
  const auto [x, y] = promoted(with_sums_made(a), with_sums_made(b));
  return is_floating(x.dtype()) ? of_floats(x, y, rounding_mode) : of_integers(x, y, rounding_mode);
}

Tensor div(const Tensor& a, double b, RoundingMode rounding_mode) {
  const auto [x, y] = beside_number(kDiv.name, a, b);
  return rounding_mode == Mode::None ? div(a, y) : div(x, y, rounding_mode);
}

}  // namespace tessera
