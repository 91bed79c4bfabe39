// Pooling over 1, 2 or 3 spatial dims, with PyTorch's rules for sizes, padding and ceil_mode.
//
// x [N, C, spatial…] or [C, spatial…], floating. Sharded: batch and channels may be cut in any way without a
// message; along a cut spatial dim one exchange brings what the windows reach beyond a rank's own part (for
// kernel = stride with cuts at multiples of it: nothing), and an output lives where the middle of its window
// lives. Means over very wide windows, adaptive_avg_pool(1) above all, move nothing at all: their sums stay
// owed (Partial). Gradients return by the adjoint exchange and can be differentiated again.
#pragma once
#include <optional>

#include "autograd/tensor.h"

namespace tessera {

// One entry per spatial dim; a single entry counts for all.
struct AvgPoolOptions {
  Dims stride{};    // empty: the kernel's sizes
  Dims padding{0};  // zeros on both sides, at most half the kernel
  bool ceil_mode = false;
  bool count_include_pad = true;  // whether padding counts in the divisor
  std::optional<std::int64_t> divisor_override = {};
};
Tensor avg_pool1d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool2d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});
Tensor avg_pool3d(const Tensor& x, const Dims& kernel_size, const AvgPoolOptions& options = {});

// Output o is the mean of inputs floor(o n / m) … ceil((o + 1) n / m) − 1.
inline constexpr std::int64_t kKeepSize =
    INT64_MIN;  // in output_size: the size stays, as with PyTorch's None
Tensor adaptive_avg_pool1d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool2d(const Tensor& x, const Dims& output_size);
Tensor adaptive_avg_pool3d(const Tensor& x, const Dims& output_size);

struct MaxPoolOptions {
  Dims stride{};    // empty: the kernel's sizes
  Dims padding{0};  // nothing on both sides, at most half the kernel
  Dims dilation{1};
  bool ceil_mode = false;
};
// The largest value of each window; NaN where there is one. Gradients go to the first of equal ones.
Tensor max_pool1d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool2d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});
Tensor max_pool3d(const Tensor& x, const Dims& kernel_size, const MaxPoolOptions& options = {});

// Values, and where each was found: row-major position in the sample's spatial dims (I64, whole-map positions
// whatever the cuts). The first of equal values, the last NaN; -1 where a dilated window misses the map.
struct MaxPoolResult {
  Tensor values;
  Tensor indices;
};
MaxPoolResult max_pool1d_with_indices(const Tensor& x, const Dims& kernel_size,
                                      const MaxPoolOptions& options = {});
MaxPoolResult max_pool2d_with_indices(const Tensor& x, const Dims& kernel_size,
                                      const MaxPoolOptions& options = {});
MaxPoolResult max_pool3d_with_indices(const Tensor& x, const Dims& kernel_size,
                                      const MaxPoolOptions& options = {});

}  // namespace tessera
