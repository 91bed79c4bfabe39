// How a convolution is split: windows, halos and specs. Internal to ops/conv.
#pragma once
#include "ops/conv/conv.h"
#include "ops/conv/conv_frame.h"
#include "ops/cpu/conv.h"
#include "ops/window/window_buffer.h"

namespace tessera {

// One window a spatial dim, of which there are up to three, without a heap allocation.
class Windows {
 public:
  int size() const { return n_; }
  void push_back(const Window& w) { w_.at(static_cast<std::size_t>(n_++)) = w; }
  const Window& operator[](int d) const { return w_[static_cast<std::size_t>(d)]; }
  const Window* begin() const { return w_.data(); }
  const Window* end() const { return w_.data() + n_; }
  Window* begin() { return w_.data(); }
  Window* end() { return w_.data() + n_; }
  bool operator==(const Windows& o) const { return std::equal(begin(), end(), o.begin(), o.end()); }

 private:
  std::array<Window, 3> w_;
  int n_ = 0;
};

struct ConvSetup {
  Windows windows;  // padding included
  std::int64_t groups = 1;
  bool operator==(const ConvSetup&) const = default;
  int spatial() const { return windows.size(); }
  // Refuses, in the name of `op`, what leaves no output, and padding that its mode cannot fill.
  void check_fits(const char* op, const Dims& x) const;
  Dims output_sizes(const Dims& x, const Dims& w) const;
  std::size_t hash() const;
  // Some padding is taken from the map.
  bool reads_beyond() const {
    return std::any_of(windows.begin(), windows.end(), [](const Window& w) { return w.reads_beyond(); });
  }
  // One filter a channel: channels may be cut like anything else.
  bool depthwise(const Dims& w) const { return groups > 1 && w[0] == groups && w[1] == 1; }
};

// What becomes of a forward call's sums.
struct ConvResult {
  Activation activation = Activation::None;
  bool keeps = false;  // what the activation is given is a second output
};

// What one call on given specs does. `halo` brings together the input buffer that the local windows read.
struct ConvPlan {
  SpecPtr x, w, y;
  WindowBuffer halo;            // cut dims
  WindowBuffer wrap;            // then, on this rank alone, whole dims whose padding is taken from them
  std::vector<bool> in_buffer;  // per spatial dim: padding already lies in the buffer
  cpu::ConvGeometry geometry;   // the kernel's, on the buffer: this rank's groups
  ConvFrame frame;              // where there is no need for a buffer
  ConvFrame added;              // likewise, with edges that are added; may be unused where that is used
};

// The strategy of a forward call on these inputs (bias: null if absent), with the ConvPlan in `extra`.
Strategy conv_strategy(const std::vector<SpecPtr>& inputs, const Dims& y_sizes, const ConvSetup& setup,
                       const ConvResult& result = {});
// For plain tensors: only dims whose padding is taken from them need a buffer. The last ones are kept.
std::shared_ptr<const ConvPlan> plain_conv_plan(const Dims& x_sizes, const Dims& y_sizes,
                                                const ConvSetup& setup);

// The kernel's geometry without a plan.
cpu::ConvGeometry plain_geometry(const ConvSetup& setup);
// Sizes of what the kernel reads, given the local input's.
Dims buffer_sizes(const ConvPlan& plan, const Dims& local);
// x with its halo (or x itself).
Array halo_buffer(const ConvPlan& plan, const Array& x);
// The adjoint: consumes the gradient of the buffer, gives the input's.
Array halo_adjoint(const ConvPlan& plan, const Array& buffer);

}  // namespace tessera
