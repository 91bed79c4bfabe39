#include "ops/shape/element_map.h"

namespace tessera {

SpecPtr gradient_spec(const SpecPtr& like, const ShardSpec& dy, const Dims& sizes) {
  const SpecPtr base = like ? like : ShardSpec::replicated(dy.mesh(), sizes);
  Placements p = base->placements();
  for (std::size_t a = 0; a < p.size(); ++a) {
    const Placement& q = dy.placements()[a];
    if (!p[a].is_shard()) p[a] = q.is_partial() && q.op == ReduceOp::Sum ? Partial() : Replicate();
  }
  return with_placements(*base, p);
}

}  // namespace tessera
