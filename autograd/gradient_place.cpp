#include "autograd/gradient_place.h"

#include "autograd/adjoints.h"
#include "runtime/error.h"

namespace tessera {

Tensor placed_as(const Tensor& g, const SpecPtr& own) {
  if (!own || !g.defined() || g.spec() == own ||
      (g.is_sharded() && g.spec()->mesh_core() != own->mesh_core()))
    return g;
  Placements p = own->placements();
  for (std::size_t a = 0; a < p.size(); ++a) {
    if (p[a].is_shard()) continue;
    const Placement q = g.is_sharded() ? g.spec()->placements()[a] : Replicate();
    if (q.is_shard()) return g;  // it would be made whole
    p[a] = q;
  }
  return settled(g, with_placements(*own, p));
}

void put_on_one_mesh(Tensors& gradients) {
  const ShardSpec* first = nullptr;
  for (Tensor& g : gradients) {
    if (!g.defined() || !g.is_sharded()) continue;
    if (first == nullptr) first = g.spec().get();
    if (g.spec()->mesh_core() != first->mesh_core())
      g = redistribute(g, ShardSpec::replicated(first->mesh(), g.sizes()));
  }
}

Tensor in_place_of(const Tensor& gradient, const Tensor& given, const char* op) {
  TS_CHECK(given.sizes() == gradient.sizes() && given.dtype() == gradient.dtype(), op,
           "a hook gave {} {} for a gradient of {} {}; it must have the same dtype and sizes",
           name_of(given.dtype()), given.sizes().str(), name_of(gradient.dtype()), gradient.sizes().str());
  return given;
}

}  // namespace tessera
