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

bool sums_come_first(Device device) { return device == Device::Cuda || makes_sums_first(); }

bool is_infinite(const Array& a) {
  return a.device() == Device::Cpu && is_floating(a.dtype()) && is_delicate(a, BinaryOp::Mul);
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
  if ((owes(a) || owes(b)) && sums_come_first(a.device())) return Linearity::None;
  return kernel == BinaryOp::Mul ? Linearity::Each : Linearity::First;
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

bool counts_here(const LocalCall& l) {
  if (l.plan == nullptr || !l.in_spec(0)->has_partial()) return true;
  return is_first(l.in_spec(0)->mesh(), l.in_spec(0)->partial_mask());
}

bool Factors::owed(const LocalCall& l) {
  return l.plan != nullptr && (l.in_spec(0)->has_partial() || l.in_spec(1)->has_partial());
}

Factors::Factors(const LocalCall& l, Array* halo) : given_(l.in.first(2)) {
  if (!owed(l)) return;
  const std::size_t owing = l.in_spec(0)->has_partial() ? 0 : 1;
  const bool reads_halo = halo != nullptr && halo->defined();
  if (!is_infinite(given_[1 - owing]) && !(owing == 0 && reads_halo && is_infinite(*halo))) return;
  const unsigned axes = l.in_spec(owing)->partial_mask();
  const DeviceMesh mesh = l.in_spec(owing)->mesh();
  const Communicator group = mesh.group(axes);
  const bool elsewhere = !is_first(mesh, axes);
  const auto replaced = [&](const Array& terms, bool owes_them) {
    if (!owes_them) return elsewhere ? Array::zeros(terms.sizes(), terms.dtype(), terms.device()) : terms;
    Array sum = terms.clone();
    group.all_reduce(sum, ReduceOp::Sum).wait();
    if (elsewhere) sum.zero_();
    return sum;
  };
  for (std::size_t i = 0; i < 2; ++i) made_.push_back(replaced(given_[i], i == owing));
  if (reads_halo) *halo = replaced(*halo, owing == 1);
}

Tensor with_sums_made(const Tensor& x) { return owes(x) ? settled(x, without_partial(*x.spec())) : x; }

std::array<Tensor, 2> factors_to_call(const Tensor& a, const Tensor& b) {
  if ((!owes(a) && !owes(b)) || !sums_come_first(a.device())) return {a, b};
  return {with_sums_made(a), with_sums_made(b)};
}

}  // namespace tessera
