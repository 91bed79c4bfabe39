// Normalisation: layer and root-mean-square norm over the last dims, group, instance and batch norm over
// channels (dim 1 of [N, C, spatial…]). Names and results are PyTorch's.
//
// Sharded: what is not normalised over may be cut, without a message. Where a normalised dim is cut, the
// statistics of all rows travel in one message: a mean in two terms and squared deviations, which are merged
// (Chan et al. 1979), so that values far from zero lose no digits; for root-mean-square norm a sum of
// squares. Shares may be of any sizes, empty ones too, and channels may be cut inside a group. Backward sends
// one message of two sums per statistic (one sum for root-mean-square norm). The gradients of weight and bias
// stay owed (Partial) over axes that cut anything else.
#pragma once
#include <optional>

#include "autograd/tensor.h"
#include "ops/cpu/channel_norm.h"

namespace tessera {

// Over the last normalized_shape.size() dims; weight and bias of that shape, or undefined.
Tensor layer_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = Tensor(),
                  const Tensor& bias = Tensor(), double eps = 1e-5);
struct AddLayerNormOptions {
  Tensor weight = Tensor();  // of normalized_shape, or undefined
  Tensor bias = Tensor();
  double eps = 1e-5;
};
struct AddLayerNorm {
  Tensor sum;   // x + residual
  Tensor norm;  // layer_norm(sum, …)
};
// A residual connection and the layer norm after it in one pass over memory, forward and backward: the same
// numbers as the two calls. x and residual alike in sizes and type; where either owes a sum (Partial) it is
// reduced first.
AddLayerNorm add_layer_norm(const Tensor& x, const Tensor& residual, const Dims& normalized_shape,
                            const AddLayerNormOptions& options = {});
// x / sqrt(mean(x²) + eps); without eps, that of the type computed in (float32 for bf16 and f16).
Tensor rms_norm(const Tensor& x, const Dims& normalized_shape, const Tensor& weight = Tensor(),
                std::optional<double> eps = std::nullopt);

// In what follows weight and bias have one element per channel, or are undefined.
//
// An activation may follow in the same pass over memory: relu(group_norm(x, …)) and
// group_norm(x, …, {.activation = NormActivation::Relu}) are the same numbers. Only its result is written;
// backward works out its argument from x again, so that neither the normalised values nor the argument stay
// in memory.
using cpu::NormActivation;  // None, Relu, Silu, Gelu, GeluTanh

// Each sample's channels in num_groups equal groups.
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight = Tensor(),
                  const Tensor& bias = Tensor(), double eps = 1e-5);
struct GroupNormOptions {
  double eps = 1e-5;
  NormActivation activation = NormActivation::None;
};
Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options);

// One element per channel each, both or none; plain or placed in any way. Training changes them in place.
struct RunningStatistics {
  Tensor mean;
  Tensor var;
};

// A batch whose samples are shared out over an axis of `mesh`, every rank's tensor holding its own samples
// only (plain, or on a sub-mesh of other axes), as train::DataParallel has it. Statistics are then those of
// all samples; each rank may have a different number of them, or none.
struct SharedBatch {
  DeviceMesh mesh;  // undefined: the tensor is the whole batch
  int axis = 0;
};

struct BatchNormOptions {
  bool training = false;
  double momentum = 0.1;
  double eps = 1e-5;
  SharedBatch shared = {};
  NormActivation activation = NormActivation::None;
};
// Training: normalised by the statistics of the batch, which move the running ones by `momentum` (the
// variance with n - 1, as PyTorch has it); refused for a single value per channel. A batch without any value
// changes nothing. Else: normalised by the running statistics, which must be there.
Tensor batch_norm(const Tensor& x, const RunningStatistics& running, const Tensor& weight = Tensor(),
                  const Tensor& bias = Tensor(), const BatchNormOptions& options = {});

struct InstanceNormOptions {
  bool use_input_stats = true;
  double momentum = 0.1;
  double eps = 1e-5;
  SharedBatch shared = {};  // matters to running statistics only
  NormActivation activation = NormActivation::None;
};
// Each channel of each sample by itself. Running statistics move by the mean over the samples of theirs;
// without use_input_stats they are what normalises. Equal values without an eps become 0 (times weight, plus
// bias) and have no gradient.
Tensor instance_norm(const Tensor& x, const RunningStatistics& running = {}, const Tensor& weight = Tensor(),
                     const Tensor& bias = Tensor(), const InstanceNormOptions& options = {});

}  // namespace tessera
