#pragma once
#include "nn/module.h"
#include "ops/conv/conv.h"
#include "ops/conv/conv_transpose.h"

namespace tessera::nn {

// Of kernel_size, stride, padding and dilation a single entry counts for every spatial dim.
struct ConvLayerOptions {
  Dims kernel_size{};
  Dims stride{1};
  Dims padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
  PaddingMode padding_mode = PaddingMode::Zeros;
  bool same = false;  // padding "same", see ConvOptions
  Dims periodic{};    // see ConvOptions
  bool bias = true;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;          // see LinearOptions
  Activation activation = Activation::None;  // of the result, in the same call
};

// [N, in_channels, spatial…] -> [N, out_channels, spatial…]. Along cut spatial dims neighbours' cells are
// fetched.
class Conv : public Module {
 public:
  Conv(int spatial_dims, std::int64_t in_channels, std::int64_t out_channels,
       const ConvLayerOptions& options);
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  Tensor weight;  // [out_channels, in_channels / groups, kernel…]
  Tensor bias;    // [out_channels], or undefined

 private:
  ConvOptions options_;
};

class Conv1d : public Conv {
 public:
  Conv1d(std::int64_t in_channels, std::int64_t out_channels, const ConvLayerOptions& options)
      : Conv(1, in_channels, out_channels, options) {}
};
class Conv2d : public Conv {
 public:
  Conv2d(std::int64_t in_channels, std::int64_t out_channels, const ConvLayerOptions& options)
      : Conv(2, in_channels, out_channels, options) {}
};
class Conv3d : public Conv {
 public:
  Conv3d(std::int64_t in_channels, std::int64_t out_channels, const ConvLayerOptions& options)
      : Conv(3, in_channels, out_channels, options) {}
};

struct ConvTransposeLayerOptions {
  Dims kernel_size{};
  Dims stride{1};
  Dims padding{0};
  Dims output_padding{0};
  Dims dilation{1};
  std::int64_t groups = 1;
  bool bias = true;
  DType dtype = DType::F32;
  GeneratorPtr generator = nullptr;  // see LinearOptions
};

// [N, in_channels, spatial…] -> [N, out_channels, spatial…]. What falls to a neighbour is sent there; nothing
// where the kernel is no longer than the stride.
class ConvTranspose : public Module {
 public:
  ConvTranspose(int spatial_dims, std::int64_t in_channels, std::int64_t out_channels,
                const ConvTransposeLayerOptions& options);
  Tensor forward(const Tensor& x) override;
  // With the output_padding that gives these spatial sizes.
  Tensor forward(const Tensor& x, const Dims& output_size);
  void reset_parameters(Generator& generator) override;

  Tensor weight;  // [in_channels, out_channels / groups, kernel…]
  Tensor bias;    // [out_channels], or undefined

 private:
  Tensor call(const Tensor& x, const ConvTransposeOptions& options) const;
  ConvTransposeOptions options_;
};

class ConvTranspose1d : public ConvTranspose {
 public:
  ConvTranspose1d(std::int64_t in_channels, std::int64_t out_channels,
                  const ConvTransposeLayerOptions& options)
      : ConvTranspose(1, in_channels, out_channels, options) {}
};
class ConvTranspose2d : public ConvTranspose {
 public:
  ConvTranspose2d(std::int64_t in_channels, std::int64_t out_channels,
                  const ConvTransposeLayerOptions& options)
      : ConvTranspose(2, in_channels, out_channels, options) {}
};
class ConvTranspose3d : public ConvTranspose {
 public:
  ConvTranspose3d(std::int64_t in_channels, std::int64_t out_channels,
                  const ConvTransposeLayerOptions& options)
      : ConvTranspose(3, in_channels, out_channels, options) {}
};

}  // namespace tessera::nn
