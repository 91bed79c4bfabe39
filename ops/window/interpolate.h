// Resizing maps, with PyTorch's rules for where an output looks.
//
// x [N, C, spatial…], floating. Sharded: batch and channels may be cut in any way without a message; along a
// cut spatial dim one exchange brings the one to three positions beyond a rank's own part that its outputs
// read, and an output lives where the input nearest to it lives.
#pragma once
#include <optional>
#include <vector>

#include "autograd/tensor.h"

namespace tessera {

enum class InterpolateMode : std::uint8_t {
  Nearest,
  NearestExact,
  Linear,     // one spatial dim
  Bilinear,   // two
  Trilinear,  // three
  Bicubic,    // two; Keys' kernel with a = -0.75
  Area,       // adaptive_avg_pool
};
// PyTorch's CPU kernels differ among themselves in what the nearest position is where rounding decides. Here
// all memory orders and the gradient have one answer: positions are counted in float32 for all types (PyTorch
// counts those of contiguous float64 maps in float64, forward only); a scale_factor that is kept gives them
// also where the output is as large as the input or exactly twice so (as PyTorch's forward pass of one dim
// and of contiguous volumes), except for Nearest of images, where the sizes do (as all of PyTorch's kernels
// there).
struct InterpolateOptions {
  // Exactly one of the two; a single entry counts for all spatial dims.
  Dims size{};
  std::vector<double> scale_factor{};  // sizes are rounded down; the factor itself gives the positions
  InterpolateMode mode = InterpolateMode::Nearest;
  std::optional<bool> align_corners = {};  // of the linear and cubic modes only
  bool recompute_scale_factor = false;     // positions from the rounded sizes
};
Tensor interpolate(const Tensor& x, const InterpolateOptions& options);

}  // namespace tessera
