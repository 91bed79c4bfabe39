#include "ops/elementwise/owed_terms.h"

#include <algorithm>
#include <atomic>
#include <cmath>

#include "autograd/adjoints.h"

namespace tessera {
namespace {

using cpu::BinaryOp;

std::atomic<bool> sums_first{false};

bool owes(const Tensor& t) { return t.defined() && t.is_sharded() && t.spec()->has_partial(); }

template <class T>
bool any_of(const Array& a, bool (*is)(T)) {
  const Array dense = a.contiguous();
  const T* const values = dense.data<T>();
  return std::any_of(values, values + dense.numel(), is);
}

// Whether products with terms are no terms of the product.
bool is_delicate(const Array& factor, BinaryOp kernel) {
  return dispatch_floating(factor.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (kernel == BinaryOp::Div) return any_of<T>(factor, [](T v) { return static_cast<double>(v) == 0; });
    return any_of<T>(factor, [](T v) { return std::isinf(static_cast<double>(v)); });
  });
}

bool is_first(const DeviceMesh& mesh, unsigned axes) {
  for (int a = 0; a < mesh.ndim(); ++a)
    if ((axes >> static_cast<unsigned>(a) & 1U) != 0 && mesh.coordinate(a) != 0) return false;
  return true;
}

}  // namespace

bool makes_sums_first() { return sums_first.load(std::memory_order_relaxed); }
void set_makes_sums_first(bool on) { sums_first.store(on, std::memory_order_relaxed); }

Linearity owed_through(BinaryOp kernel, const Tensor& a, const Tensor& b) {
  if (!owes(a) && !owes(b)) return kernel == BinaryOp::Mul ? Linearity::Each : Linearity::First;
  if (a.device() == Device::Cuda || makes_sums_first()) return Linearity::None;
  // One input may owe, so that the other is a factor and nothing else.
  return kernel == BinaryOp::Mul && !(owes(a) && owes(b)) ? Linearity::Each : Linearity::First;
}

std::optional<OwedSum> sum_owed_terms(const LocalCall& l, BinaryOp kernel) {
  if (l.plan == nullptr || (kernel != BinaryOp::Mul && kernel != BinaryOp::Div)) return std::nullopt;
  for (std::size_t i = 0; i < 2; ++i) {
    const unsigned axes = l.in_spec(i)->partial_mask();
    if (axes == 0) continue;
    const Array& factor = l.in[1 - i];
    if (factor.device() != Device::Cpu || !is_floating(factor.dtype()) || !is_delicate(factor, kernel))
      return std::nullopt;
    const DeviceMesh mesh = l.in_spec(i)->mesh();
    OwedSum owed{i, l.in[i].clone(), !is_first(mesh, axes)};
    mesh.group(axes).all_reduce(owed.sum, ReduceOp::Sum).wait();
    return owed;
  }
  return std::nullopt;
}

Tensor with_sums_made(const Tensor& x) { return owes(x) ? redistribute(x, without_partial(*x.spec())) : x; }

}  // namespace tessera
