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
  const CommScope scope("redistribute");
  if (to->mesh().comm().checks_calls())
    check_same(to->mesh().comm(),
               fmt::format("redistribute {} {} to {}", name_of(t.dtype()), from->str(), to->str()));
  if (t.is_sharded() && from == to) return t;
  Tensor moved(redistribute(t.local(), from, to), to);
  record_simple("redistribute", {&t, 1}, {&moved, 1},
                [](const BackwardContext&, const Tensors& g) { return g; });
  return moved;
}

}  // namespace tessera
