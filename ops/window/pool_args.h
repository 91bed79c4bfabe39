// What pooling operations check and work out alike. Internal to ops/.
#pragma once
#include "ops/window/axis_map.h"

namespace tessera {

struct PoolArgs {
  const char* op;
  int spatial;
  Dims kernel;
  Dims stride;  // empty: the kernel
  Dims padding;
  Dims dilation{1};
  bool ceil_mode = false;
};

// Refuses what is no map of `spatial` dims, with or without a batch, and floating.
void check_map(const char* op, const Tensor& x, int spatial);
void check_map_dims(const char* op, const Tensor& x, int spatial);  // of any dtype
// One window per spatial dim of `x` [N, C, spatial…], as axis maps that `rows` fills.
AxisMaps pool_axes(const PoolArgs& args, const Dims& x, AxisMap::RowFunction rows);

}  // namespace tessera
