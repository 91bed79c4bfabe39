// How a convolution is split: windows, halos and specs. Internal to ops/conv.
#pragma once
#include "ops/conv/conv.h"
#include "ops/cpu/conv.h"
#include "ops/shape/layout_ops.h"

namespace tessera {

struct ConvSetup {
  std::vector<Window> windows;  // per spatial dim; padding and periodicity included
  std::int64_t groups = 1;
  int spatial() const { return static_cast<int>(windows.size()); }
  Dims output_sizes(const Dims& x, const Dims& w) const;
  std::size_t hash() const;
};

// What one call on given specs does. `halo` brings together the input buffer that the local windows read.
struct ConvPlan {
  SpecPtr x, w, y;
  BoxMap halo;
  bool direct = true;           // the local input is the buffer
  std::vector<bool> in_buffer;  // per spatial dim: padding already lies in the buffer
};

// The strategy of a forward call on these inputs (bias: null if absent), with the ConvPlan in `extra`.
Strategy conv_strategy(const std::vector<SpecPtr>& inputs, const Dims& y_sizes, const ConvSetup& setup);
// For plain tensors: only periodic dims need a buffer.
ConvPlan plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& setup);

// The kernel's geometry on the buffer.
cpu::ConvGeometry local_geometry(const ConvPlan& plan, const ConvSetup& setup);
// x with its halo (or x itself).
Array halo_buffer(const ConvPlan& plan, const Array& x);

}  // namespace tessera
