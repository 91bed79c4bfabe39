// Batch and instance norm: normalised by statistics of the input, or by running ones kept in buffers.
//
// Statistics are those of the whole tensor, however it is cut. Where the samples of a batch are shared out
// over an axis of a mesh around (train::DataParallel's ddp axis), every rank's tensor being its own samples
// only, they are still those of the whole batch: DataParallel tells the layers so (share_batch). Buffers have
// the same bits on every rank.
#pragma once
#include <optional>

#include "nn/module.h"
#include "ops/norm/norm.h"

namespace tessera::nn {

// As PyTorch has them, batch norms have parameters and running statistics unless told otherwise, instance
// norms have neither unless asked for.
template <bool by_default>
struct RunningNormOptionsOf {
  double eps = 1e-5;
  std::optional<double> momentum = 0.1;  // none: the mean over all batches so far
  bool affine = by_default;              // weight (ones) and bias (zeros) of each channel
  bool track_running_stats = by_default;
  DType dtype = DType::F32;
  NormActivation activation = NormActivation::None;  // follows in the same pass over memory
};
using RunningNormOptions = RunningNormOptionsOf<true>;
using InstanceNormLayerOptions = RunningNormOptionsOf<false>;

// What both kinds have in common: parameters weight and bias, buffers running_mean, running_var and
// num_batches_tracked.
class RunningNorm : public Module {
 public:
  void reset_parameters(Generator& generator) override;
  // Zeros and ones, no batch.
  void reset_running_stats() const;
  // From now on the batch is shared out so; an undefined mesh: it is not.
  void share_batch(const SharedBatch& shared) { shared_ = shared; }

  Tensor weight;
  Tensor bias;
  Tensor running_mean;
  Tensor running_var;
  Tensor num_batches_tracked;

 protected:
  template <bool by_default>
  RunningNorm(std::int64_t channels, const RunningNormOptionsOf<by_default>& options);
  void check_channels(const char* name, const Tensor& x, int dim) const;

  std::int64_t channels_;
  double eps_;
  std::optional<double> momentum_;
  NormActivation activation_;
  SharedBatch shared_;
};

// [N, channels, …]. While training, or without running statistics, by those of the batch.
class BatchNorm : public RunningNorm {
 public:
  Tensor forward(const Tensor& x) override;

 protected:
  BatchNorm(const char* name, int spatial_dims, std::int64_t channels, const RunningNormOptions& options)
      : RunningNorm(channels, options), name_(name), spatial_dims_(spatial_dims) {}

 private:
  double next_momentum() const;
  const char* name_;
  int spatial_dims_;
};

class BatchNorm1d : public BatchNorm {  // [N, C] or [N, C, L]
 public:
  explicit BatchNorm1d(std::int64_t num_features, const RunningNormOptions& options = {})
      : BatchNorm("BatchNorm1d", 1, num_features, options) {}
};
class BatchNorm2d : public BatchNorm {
 public:
  explicit BatchNorm2d(std::int64_t num_features, const RunningNormOptions& options = {})
      : BatchNorm("BatchNorm2d", 2, num_features, options) {}
};
class BatchNorm3d : public BatchNorm {
 public:
  explicit BatchNorm3d(std::int64_t num_features, const RunningNormOptions& options = {})
      : BatchNorm("BatchNorm3d", 3, num_features, options) {}
};

// [N, channels, …] or one sample [channels, …]. By the statistics of each channel of each sample; out of
// training by the running ones, if there are any.
class InstanceNorm : public RunningNorm {
 public:
  Tensor forward(const Tensor& x) override;

 protected:
  InstanceNorm(const char* name, int spatial_dims, std::int64_t channels,
               const InstanceNormLayerOptions& options)
      : RunningNorm(channels, options), name_(name), spatial_dims_(spatial_dims) {}

 private:
  const char* name_;
  int spatial_dims_;
};

class InstanceNorm1d : public InstanceNorm {
 public:
  explicit InstanceNorm1d(std::int64_t num_features, const InstanceNormLayerOptions& options = {})
      : InstanceNorm("InstanceNorm1d", 1, num_features, options) {}
};
class InstanceNorm2d : public InstanceNorm {
 public:
  explicit InstanceNorm2d(std::int64_t num_features, const InstanceNormLayerOptions& options = {})
      : InstanceNorm("InstanceNorm2d", 2, num_features, options) {}
};
class InstanceNorm3d : public InstanceNorm {
 public:
  explicit InstanceNorm3d(std::int64_t num_features, const InstanceNormLayerOptions& options = {})
      : InstanceNorm("InstanceNorm3d", 3, num_features, options) {}
};

}  // namespace tessera::nn
