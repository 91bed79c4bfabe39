#include "ops/window/axis_map.h"

#include "runtime/checked_sizes.h"

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

void check_outputs(const char* op, const Tensor& x, const AxisMaps& maps) {
  for (const AxisMap& axis : maps)
    TS_CHECK(axis.outputs <= kMostOutputs, op,
             "dim {} of size {} would have {} positions, at most {} are allowed", axis.dim, axis.inputs,
             axis.outputs, kMostOutputs);
  check_storable(op, mapped_sizes(x.sizes(), maps), x.dtype());
}

}  // namespace tessera
