#include "ops/window/axis_map.h"

namespace tessera {

std::size_t hash_of(const AxisMaps& maps) {
  Hash hash;
  for (const AxisMap& axis : maps) axis.add_to(hash);
  return hash;
}

Dims mapped_sizes(const Dims& sizes, const AxisMaps& maps) {
  Dims out = sizes;
  for (const AxisMap& axis : maps) out[axis.dim] = axis.outputs;
  return out;
}

}  // namespace tessera
