#include "nn/batch_norm.h"

#include "nn/init.h"
#include "ops/shape/shape_ops.h"
#include "runtime/copy.h"
#include "runtime/error.h"

namespace tessera::nn {

template <bool by_default>
RunningNorm::RunningNorm(std::int64_t channels, const RunningNormOptionsOf<by_default>& options)
    : channels_(channels), eps_(options.eps), momentum_(options.momentum), activation_(options.activation) {
  TS_CHECK(channels > 0, "BatchNorm", "{} channels given, at least 1 is needed", channels);
  const auto channel_vector = [&](bool wanted, double value) {
    return wanted ? full({channels}, value, options.dtype) : Tensor();
  };
  const bool track = options.track_running_stats;
  weight = register_parameter("weight", channel_vector(options.affine, 1.0));
  bias = register_parameter("bias", channel_vector(options.affine, 0.0));
  running_mean = register_buffer("running_mean", channel_vector(track, 0.0));
  running_var = register_buffer("running_var", channel_vector(track, 1.0));
  num_batches_tracked = register_buffer("num_batches_tracked", track ? zeros({}, DType::I64) : Tensor());
}

template RunningNorm::RunningNorm(std::int64_t, const RunningNormOptions&);
template RunningNorm::RunningNorm(std::int64_t, const InstanceNormLayerOptions&);

void RunningNorm::reset_parameters(Generator&) {
  if (weight.defined()) init::ones(weight);
  if (bias.defined()) init::zeros(bias);
  reset_running_stats();
}

void RunningNorm::reset_running_stats() const {
  if (!running_mean.defined()) return;
  running_mean.local().fill_(0.0);
  running_var.local().fill_(1.0);
  num_batches_tracked.local().fill_(0.0);
}

void RunningNorm::check_channels(const char* name, const Tensor& x, int dim) const {
  TS_CHECK(x.sizes()[dim] == channels_, name, "has {} channels, given input {}", channels_, x.sizes().str());
}

// One batch more has been seen.
double BatchNorm::next_momentum() const {
  if (!num_batches_tracked.defined()) return 0.0;
  const Array& seen = num_batches_tracked.local();
  add_into(seen, Array::full(seen.sizes(), 1.0, seen.dtype(), seen.device()));
  seen.bump_version();
  return momentum_ ? *momentum_ : 1.0 / seen.at(0);
}

Tensor BatchNorm::forward(const Tensor& x) {
  const int dims = x.dim();
  TS_CHECK(dims == spatial_dims_ + 2 || (spatial_dims_ == 1 && dims == 2), name_,
           "needs an input of {} dims{}, given {}", spatial_dims_ + 2, spatial_dims_ == 1 ? " or 2" : "",
           x.sizes().str());
  check_channels(name_, x, 1);
  const RunningStatistics running{running_mean, running_var};
  if (!training() && running.mean.defined())
    return batch_norm(x, running, weight, bias, {.training = false, .eps = eps_, .activation = activation_});
  const double momentum = training() ? next_momentum() : 0.0;
  return batch_norm(x, running, weight, bias,
                    {.training = true,
                     .momentum = momentum,
                     .eps = eps_,
                     .shared = training() ? shared_ : SharedBatch(),
                     .activation = activation_});
}

Tensor InstanceNorm::forward(const Tensor& x) {
  const int dims = x.dim();
  TS_CHECK(dims == spatial_dims_ + 2 || dims == spatial_dims_ + 1, name_,
           "needs an input of {} or, for one sample, {} dims, given {}", spatial_dims_ + 2, spatial_dims_ + 1,
           x.sizes().str());
  const bool one = dims == spatial_dims_ + 1;
  check_channels(name_, x, one ? 0 : 1);
  const RunningStatistics running{running_mean, running_var};
  const bool own = training() || !running.mean.defined();
  const Tensor y = instance_norm(one ? unsqueeze(x, 0) : x, running, weight, bias,
                                 {.use_input_stats = own,
                                  .momentum = momentum_.value_or(0.0),
                                  .eps = eps_,
                                  .shared = training() ? shared_ : SharedBatch(),
                                  .activation = activation_});
  return one ? squeeze(y, 0) : y;
}

}  // namespace tessera::nn
