#include "autograd/adjoints.h"

#include "autograd/node.h"
#include "runtime/error.h"

namespace tessera {

Tensor as_replicated(const Tensor& plain, const DeviceMesh& mesh) {
  if (plain.is_sharded()) return plain;
  Tensor t(plain.local(), ShardSpec::replicated(mesh, plain.sizes()));
  record_simple("as_replicated", {&plain, 1}, {&t, 1},
                [](const BackwardContext&, const Tensors& g) { return g; });
  return t;
}

Tensor redistribute(const Tensor& t, const SpecPtr& to) {
  TS_CHECK(t.sizes() == to->sizes(), "redistribute", "the tensor has global sizes {}, the spec {}",
           t.sizes().str(), to->sizes().str());
  const SpecPtr from = t.is_sharded() ? t.spec() : ShardSpec::replicated(to->mesh(), t.sizes());
  if (t.is_sharded() && from == to) return t;
  const CommScope scope("redistribute");
  Tensor moved(redistribute(t.local(), from, to), to);
  record_simple("redistribute", {&t, 1}, {&moved, 1},
                [](const BackwardContext&, const Tensors& g) { return g; });
  return moved;
}

Array exchange_forward(const ExchangePlan& plan, const Communicator& comm, const Array& from,
                       double outside) {
  Array to = plan.covers ? Array::empty(plan.to_sizes, from.dtype(), from.device())
                         : Array::full(plan.to_sizes, outside, from.dtype(), from.device());
  start_exchange(plan, comm, to, from).finish();
  return to;
}

Array exchange_adjoint(const ExchangePlan& plan, const Communicator& comm, const Array& to) {
  Array from = Array::zeros(plan.from_sizes, to.dtype(), to.device());
  start_adjoint(plan, comm, from, to).finish();
  return from;
}

}  // namespace tessera
