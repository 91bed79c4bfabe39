// How a convolution is split: windows, halos and specs. Internal to ops/conv.
#pragma once
#include "ops/conv/conv.h"
#include "ops/cpu/conv.h"
#include "ops/window/window_buffer.h"

namespace tessera {

struct ConvSetup {
  std::vector<Window> windows;  // per spatial dim; padding and periodicity included
  std::int64_t groups = 1;
  int spatial() const { return static_cast<int>(windows.size()); }
  void check_fits(
      const Dims& x) const;  // refuses what leaves no output, and padding that wraps more than once
  Dims output_sizes(const Dims& x, const Dims& w) const;
  std::size_t hash() const;
  bool periodic() const {
    return std::any_of(windows.begin(), windows.end(), [](const Window& w) { return w.periodic; });
  }
  // One filter a channel: channels may be cut like anything else.
  bool depthwise(const Dims& w) const { return groups > 1 && w[0] == groups && w[1] == 1; }
};

// With one dim cut, most outputs read local rows only. Those are worked on while the halo travels, straight
// from the input; the few at the edges read a small buffer that the exchange fills (top rows, then bottom
// rows). Nothing else is copied.
struct ConvPiece {
  Interval out;  // local output positions along the split dim
  Interval in;   // positions in the input, or in the edge buffer
  bool edge = false;
  std::int64_t pad_lo = 0;  // zeros beyond the domain's ends
  std::int64_t pad_hi = 0;
};

// What one call on given specs does. `halo` brings together the input buffer that the local windows read.
struct ConvPlan {
  SpecPtr x, w, y;
  std::int64_t groups = 1;      // on this rank
  bool replicated = false;      // along some mesh axis all ranks do the same
  WindowBuffer halo;            // cut dims
  WindowBuffer wrap;            // then, on this rank alone, periodic dims that are whole
  std::vector<bool> in_buffer;  // per spatial dim: padding already lies in the buffer
  int split_dim = -1;  // spatial dim that is worked on in pieces, or -1: all at once from the halo buffer
  std::vector<ConvPiece> pieces;
  BoxMap edges;  // input -> edge buffer
};

// The strategy of a forward call on these inputs (bias: null if absent), with the ConvPlan in `extra`.
Strategy conv_strategy(const std::vector<SpecPtr>& inputs, const Dims& y_sizes, const ConvSetup& setup);
// For plain tensors: only periodic dims need a buffer.
ConvPlan plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes, const ConvSetup& setup);

// The kernel's geometry on the buffer.
cpu::ConvGeometry local_geometry(const ConvPlan& plan, const ConvSetup& setup);
cpu::ConvGeometry plain_geometry(const ConvSetup& setup);  // without a plan
cpu::ConvGeometry piece_geometry(const ConvPlan& plan, const ConvSetup& setup, const ConvPiece& piece);
// Sizes of what the kernel reads, given the local input's.
Dims buffer_sizes(const ConvPlan& plan, const Dims& local);
// x with its halo (or x itself).
Array halo_buffer(const ConvPlan& plan, const Array& x);
// The adjoint: consumes the gradient of the buffer, gives the input's.
Array halo_adjoint(const ConvPlan& plan, const Array& buffer);

}  // namespace tessera
