// Norms without memory of earlier batches; those with running statistics are in batch_norm.h.
#pragma once
#include <optional>

#include "nn/module.h"
#include "ops/norm/norm.h"

namespace tessera::nn {

struct LayerNormOptions {
  double eps = 1e-5;
  bool elementwise_affine = true;  // weight (ones) and bias (zeros) of the normalized shape
  DType dtype = DType::F32;
};

// Over the last `normalized_shape.size()` dims.
class LayerNorm : public Module {
 public:
  explicit LayerNorm(const Dims& normalized_shape, const LayerNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  // x + residual, and its norm, in one pass over memory.
  AddLayerNorm forward_add(const Tensor& x, const Tensor& residual);
  void reset_parameters(Generator& generator) override;

  Tensor weight;
  Tensor bias;

 private:
  Dims shape_;
  double eps_;
};

struct RMSNormOptions {
  std::optional<double> eps = std::nullopt;  // none: that of the type computed in
  bool elementwise_affine = true;            // weight (ones) of the normalized shape
  DType dtype = DType::F32;
};

// Over the last `normalized_shape.size()` dims.
class RMSNorm : public Module {
 public:
  explicit RMSNorm(const Dims& normalized_shape, const RMSNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  Tensor weight;

 private:
  Dims shape_;
  std::optional<double> eps_;
};

struct GroupNormOptions {
  double eps = 1e-5;
  bool affine = true;  // weight (ones) and bias (zeros) of each channel
  DType dtype = DType::F32;
  NormActivation activation = NormActivation::None;  // follows in the same pass over memory
};

// [N, channels, …]: each sample's channels in equal groups.
class GroupNorm : public Module {
 public:
  GroupNorm(std::int64_t num_groups, std::int64_t num_channels, const GroupNormOptions& options = {});
  Tensor forward(const Tensor& x) override;
  void reset_parameters(Generator& generator) override;

  Tensor weight;
  Tensor bias;

 private:
  std::int64_t groups_;
  double eps_;
  NormActivation activation_;
};

}  // namespace tessera::nn
