// Pooling and resizing as modules; see ops/window/pool.h and ops/window/interpolate.h.
#pragma once
#include "nn/module.h"
#include "ops/window/interpolate.h"
#include "ops/window/pool.h"

namespace tessera::nn {

template <auto kFunction, class Options>
class Pool : public Module {
 public:
  explicit Pool(const Dims& kernel_size, const Options& options = {})
      : kernel_(kernel_size), options_(options) {}
  Tensor forward(const Tensor& x) override { return kFunction(x, kernel_, options_); }

 private:
  Dims kernel_;
  Options options_;
};
using AvgPool1d = Pool<&tessera::avg_pool1d, AvgPoolOptions>;
using AvgPool2d = Pool<&tessera::avg_pool2d, AvgPoolOptions>;
using AvgPool3d = Pool<&tessera::avg_pool3d, AvgPoolOptions>;
using MaxPool1d = Pool<&tessera::max_pool1d, MaxPoolOptions>;
using MaxPool2d = Pool<&tessera::max_pool2d, MaxPoolOptions>;
using MaxPool3d = Pool<&tessera::max_pool3d, MaxPoolOptions>;

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

}  // namespace tessera::nn
