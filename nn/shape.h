// Flatten, Unflatten and padding as modules; see ops/shape/shape_ops.h.
#pragma once
#include "nn/module.h"
#include "ops/shape/shape_ops.h"

namespace tessera::nn {

class Flatten : public Module {
 public:
  explicit Flatten(std::int64_t start_dim = 1, std::int64_t end_dim = -1)
      : start_dim_(start_dim), end_dim_(end_dim) {}
  Tensor forward(const Tensor& x) override { return flatten(x, start_dim_, end_dim_); }

 private:
  std::int64_t start_dim_;
  std::int64_t end_dim_;
};

class Unflatten : public Module {
 public:
  Unflatten(std::int64_t dim, const Dims& unflattened_size) : dim_(dim), size_(unflattened_size) {}
  Tensor forward(const Tensor& x) override { return unflatten(x, dim_, size_); }

 private:
  std::int64_t dim_;
  Dims size_;
};

// The last spatial dims of x. `padding`: pairs (before, after), last dim first, or one number for all sides.
class Pad : public Module {
 public:
  Pad(int spatial_dims, const Dims& padding, PadMode mode, double value = 0.0);
  Tensor forward(const Tensor& x) override { return pad(x, padding_, mode_, value_); }

 private:
  std::vector<std::int64_t> padding_;
  PadMode mode_;
  double value_;
};

template <PadMode kMode, int kSpatialDims>
class PadBy : public Pad {
 public:
  explicit PadBy(const Dims& padding) : Pad(kSpatialDims, padding, kMode) {}
};
using ZeroPad1d = PadBy<PadMode::Constant, 1>;
using ZeroPad2d = PadBy<PadMode::Constant, 2>;
using ZeroPad3d = PadBy<PadMode::Constant, 3>;
using ReflectionPad1d = PadBy<PadMode::Reflect, 1>;
using ReflectionPad2d = PadBy<PadMode::Reflect, 2>;
using ReflectionPad3d = PadBy<PadMode::Reflect, 3>;
using ReplicationPad1d = PadBy<PadMode::Replicate, 1>;
using ReplicationPad2d = PadBy<PadMode::Replicate, 2>;
using ReplicationPad3d = PadBy<PadMode::Replicate, 3>;
using CircularPad1d = PadBy<PadMode::Circular, 1>;
using CircularPad2d = PadBy<PadMode::Circular, 2>;
using CircularPad3d = PadBy<PadMode::Circular, 3>;

template <int kSpatialDims>
class ConstantPad : public Pad {
 public:
  ConstantPad(const Dims& padding, double value) : Pad(kSpatialDims, padding, PadMode::Constant, value) {}
};
using ConstantPad1d = ConstantPad<1>;
using ConstantPad2d = ConstantPad<2>;
using ConstantPad3d = ConstantPad<3>;

}  // namespace tessera::nn
