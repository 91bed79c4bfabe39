#include "ops/elementwise/array_math.h"

#include "ops/kernels.h"

namespace tessera {

Array array_unary(cpu::UnaryOp op, const Array& x, double alpha) {
  Array out = Array::empty(x.sizes(), x.dtype(), x.device());
  kernels::unary(x.device(), {out, x, op, alpha});
  return out;
}

void array_unary_(cpu::UnaryOp op, const Array& x, double alpha) {
  kernels::unary(x.device(), {x, x, op, alpha});
}

Array array_binary(cpu::BinaryOp op, const Array& a, const Array& b) {
  Array out = Array::empty(a.sizes(), a.dtype(), a.device());
  kernels::binary(a.device(), {out, a, b.expand(a.sizes()), op});
  return out;
}

Array array_reduce(cpu::ReduceKind kind, const Array& x, const Dims& dims) {
  Dims sizes = x.sizes();
  for (std::int64_t d : dims) sizes[static_cast<int>(d)] = 1;
  Array out = Array::empty(sizes, x.dtype(), x.device());
  kernels::reduce(x.device(), {out, x, kind});
  return out;
}

Array array_replace(const Array& x, double of, double value) {
  const auto filled = [&](double v) { return Array::full({}, v, x.dtype(), x.device()).expand(x.sizes()); };
  const Array found = Array::empty(x.sizes(), DType::Bool, x.device());
  kernels::binary(x.device(), {found, x, filled(of), cpu::BinaryOp::Eq});
  Array out = Array::empty(x.sizes(), x.dtype(), x.device());
  kernels::where(x.device(), {out, found, filled(value), x});
  return out;
}

}  // namespace tessera
