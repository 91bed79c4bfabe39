// Pooling and resizing as modules; see ops/window/pool.h and ops/window/interpolate.h.
#pragma once
#include "nn/module.h"
#include "ops/window/interpolate.h"
#include "ops/window/pool.h"

namespace tessera::nn {

template <auto kFunction>
class AvgPool : public Module {
 public:
  explicit AvgPool(const Dims& kernel_size, const AvgPoolOptions& options = {})
      : kernel_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& x) override { return kFunction(x, kernel_, options_); }

 private:
  Dims kernel_;
  AvgPoolOptions options_;
};
using AvgPool1d = AvgPool<&tessera::avg_pool1d>;
using AvgPool2d = AvgPool<&tessera::avg_pool2d>;
using AvgPool3d = AvgPool<&tessera::avg_pool3d>;

template <auto kFunction, auto kWithIndices>
class MaxPool : public Module {
 public:
  explicit MaxPool(const Dims& kernel_size, const MaxPoolOptions& options = {})
      : kernel_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& x) override { return kFunction(x, kernel_, options_); }
  // What PyTorch's return_indices gives: the values, and where in the whole map each was found.
  MaxPoolResult with_indices(const Tensor& x) const { return kWithIndices(x, kernel_, options_); }

 private:
  Dims kernel_;
  MaxPoolOptions options_;
};
using MaxPool1d = MaxPool<&tessera::max_pool1d, &tessera::max_pool1d_with_indices>;
using MaxPool2d = MaxPool<&tessera::max_pool2d, &tessera::max_pool2d_with_indices>;
using MaxPool3d = MaxPool<&tessera::max_pool3d, &tessera::max_pool3d_with_indices>;

template <Tensor (*kFunction)(const Tensor&, const Dims&)>
class AdaptivePool : public Module {
 public:
  explicit AdaptivePool(const Dims& output_size) : size_(output_size) {}
  Tensor forward(const Tensor& x) override { return kFunction(x, size_); }

 private:
  Dims size_;
};
using AdaptiveAvgPool1d = AdaptivePool<&tessera::adaptive_avg_pool1d>;
using AdaptiveAvgPool2d = AdaptivePool<&tessera::adaptive_avg_pool2d>;
using AdaptiveAvgPool3d = AdaptivePool<&tessera::adaptive_avg_pool3d>;

class Upsample : public Module {
 public:
  explicit Upsample(InterpolateOptions options) : options_(std::move(options)) {}
  Tensor forward(const Tensor& x) override { return interpolate(x, options_); }

 private:
  InterpolateOptions options_;
};

// Exactly one of the two; a single entry counts for both dims.
struct Upsampling2dOptions {
  Dims size{};
  std::vector<double> scale_factor{};
};
class UpsamplingNearest2d : public Upsample {
 public:
  explicit UpsamplingNearest2d(const Upsampling2dOptions& o)
      : Upsample({.size = o.size, .scale_factor = o.scale_factor}) {}
};
class UpsamplingBilinear2d : public Upsample {
 public:
  explicit UpsamplingBilinear2d(const Upsampling2dOptions& o)
      : Upsample({.size = o.size,
                  .scale_factor = o.scale_factor,
                  .mode = InterpolateMode::Bilinear,
                  .align_corners = true}) {}
};

}  // namespace tessera::nn
