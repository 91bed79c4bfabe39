// Group, batch and instance norm: what each checks, and running statistics.
#include "autograd/adjoints.h"
#include "ops/norm/channel_norm.h"
#include "ops/norm/norm_kernels.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/shape_ops.h"

namespace tessera {
namespace {

void check_input(const char* op, const Tensor& x, const Tensor& weight, const Tensor& bias) {
  TS_CHECK(x.defined() && is_floating(x.dtype()), op, "needs a floating tensor, given {}",
           x.defined() ? name_of(x.dtype()) : "an undefined one");
  TS_CHECK(x.dim() >= 2, op, "needs [N, C, ...], given {}", x.sizes().str());
  for (const Tensor* p : {&weight, &bias})
    TS_CHECK(!p->defined() || (p->sizes() == Dims{x.sizes()[1]} && p->dtype() == x.dtype()), op,
             "weight and bias must have one element for each of {} channels and dtype {}, given {} {}",
             x.sizes()[1], name_of(x.dtype()), p->sizes().str(), name_of(p->dtype()));
}

void check_running(const char* op, const Tensor& x, const RunningStatistics& running) {
  TS_CHECK(running.mean.defined() == running.var.defined(), op,
           "running mean and variance must both be given or neither");
  for (const Tensor* r : {&running.mean, &running.var})
    TS_CHECK(!r->defined() || (r->sizes() == Dims{x.sizes()[1]} && is_floating(r->dtype())), op,
             "running statistics must have one floating element for each of {} channels, given {} {}",
             x.sizes()[1], r->sizes().str(), name_of(r->dtype()));
  for (const Tensor* r : {&running.mean, &running.var})
    TS_CHECK(!r->defined() || r->device() == x.device(), op,
             "running statistics are on {}, the input on {}; they must be on one device",
             name_of(r->device()), name_of(x.device()));
  check_together(op, {&x, &running.mean, &running.var});
}

// Those that are to be moved: there is nothing that each rank's term alone could be moved towards.
void check_moving(const char* op, const RunningStatistics& running) {
  for (const Tensor* r : {&running.mean, &running.var})
    TS_CHECK(!r->defined() || !r->is_sharded() || !r->spec()->has_partial(), op,
             "running statistics that are moved must not be sums that are owed, given {}", r->spec()->str());
}

double product(const Dims& sizes, int from) {
  double n = 1;
  for (int d = from; d < sizes.size(); ++d) n *= static_cast<double>(sizes[d]);
  return n;
}

// The sum over the ranks that the batch is shared out to.
Tensor over_shared_batch(const SharedBatch& shared, const Tensor& t) {
  if (!shared.mesh.defined() || (t.is_sharded() && t.spec()->mesh_core() == shared.mesh.core())) return t;
  const Tensor whole = t.is_sharded() ? redistribute(t, without_partial(*t.spec())) : t;
  const Array total = whole.local().clone();
  shared.mesh.group(1U << static_cast<unsigned>(shared.axis)).all_reduce(total, ReduceOp::Sum).wait();
  return t.is_sharded() ? Tensor(total, whole.spec()) : Tensor(total);
}

// Running statistics move towards those of [4, C], or of [4, samples, C] whose mean over the samples counts:
// mean in two terms, variance and number of elements. In place, by every rank alike. Nothing changes where
// there were no elements.
class RunningUpdate {
 public:
  // `row`: elements of one statistic of a sample; 0: there is one set, of the batch.
  RunningUpdate(const Tensor& statistics, double row, double momentum)
      : statistics_(statistics), row_(row), momentum_(momentum) {}

  void move(const RunningStatistics& running, const SharedBatch& shared) const {
    const bool complete = row_ == 0 || !shared.mesh.defined();
    if (complete && lies_here(running.mean) && lies_here(running.var)) {
      const Array& own = statistics_.local();
      return move_here(running, row_ == 0 ? own.unsqueeze(1) : own);
    }
    const Tensor summed = row_ == 0 ? statistics_ : over_shared_batch(shared, sum(statistics_, {1}));
    const bool plain = !running.mean.is_sharded() && !running.var.is_sharded();
    const Tensor all = plain ? summed.full_tensor() : summed;  // one message for both
    if (plain) return move_here(running, all.local().unsqueeze(1));
    move_here({running.mean, {}}, rows_for(running.mean, all, {0, 1, 3}));
    move_here({{}, running.var}, rows_for(running.var, all, {2, 3}));
  }

 private:
  // Whether every rank holds what its part of `running` moves towards. Specs alone decide, so that all ranks
  // have one answer.
  bool lies_here(const Tensor& running) const {
    const ShardSpec* all = statistics_.spec().get();
    const ShardSpec* own = running.spec().get();
    if (all == nullptr) return own == nullptr;
    const int channels = all->dim() - 1;
    for (int d = 0; d < channels; ++d)
      if (all->cut(d)) return false;
    const CutPtr& cut = all->cut(channels);
    if (own == nullptr) return !cut && !all->has_partial();
    const CutPtr& wanted = own->cut(0);
    const bool alike = cut == wanted || (cut && wanted && *cut == *wanted);
    return alike && !all->has_partial() && own->mesh_core() == all->mesh_core();
  }
  // [4, 1, C]: those of the statistics [4, C] that are named, for the channels of `running` that this rank
  // holds. Each may be a message, also for a rank that then has nothing to do.
  static Array rows_for(const Tensor& running, const Tensor& all, std::initializer_list<std::int64_t> which) {
    const SpecPtr& own = running.spec();
    const Array rows = Array::empty({4, 1, running.local().size(0)}, all.dtype(), all.device());
    for (const std::int64_t i : which) {
      const Tensor t = reshape(slice(all, 0, i, i + 1), running.sizes());
      rows.slice(0, i, 1).copy_(
          (own ? redistribute(t, own) : t.full_tensor()).local().reshape({1, 1, rows.size(2)}));
    }
    return rows;
  }
  void move_here(const RunningStatistics& running, const Array& stats) const {
    const auto local = [](const Tensor& t) { return t.defined() ? t.local() : Array(); };
    kernels::move_running(stats.device(), {local(running.mean), local(running.var), stats, row_, momentum_});
    for (const Tensor* r : {&running.mean, &running.var})
      if (r->defined()) r->bump_version();
  }

  Tensor statistics_;
  double row_;
  double momentum_;
};

ChannelNorm channel_norm_of(const OpDef& op, const Tensor& x, double eps) {
  ChannelNorm n;
  n.op = &op;
  n.groups = x.sizes()[1];
  n.eps = eps;
  n.sizes = x.sizes();
  return n;
}

// By statistics of every channel that do not depend on x.
Tensor by_running(const OpDef& op, ChannelNormInputs in, double eps, NormActivation activation) {
  TS_CHECK(in.mean.defined(), op.name, "running statistics are needed where those of the input are not used");
  ChannelNorm n = channel_norm_of(op, in.x, eps);
  n.per_sample = false;
  n.given = true;
  n.activation = activation;
  in.mean = without_gradient(in.mean);
  in.var = without_gradient(in.var);
  return channel_norm(n, in).y;
}

}  // namespace

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  double eps) {
  return group_norm(x, num_groups, weight, bias, GroupNormOptions{.eps = eps});
}

Tensor group_norm(const Tensor& x, std::int64_t num_groups, const Tensor& weight, const Tensor& bias,
                  const GroupNormOptions& options) {
  static const OpDef op{"group_norm"};
  check_input(op.name, x, weight, bias);
  const std::int64_t channels = x.sizes()[1];
  TS_CHECK(num_groups > 0 && channels > 0 && channels % num_groups == 0, op.name,
           "{} channels of the input {} cannot be divided into {} groups", channels, x.sizes().str(),
           num_groups);
  ChannelNorm n = channel_norm_of(op, x, options.eps);
  n.groups = num_groups;
  n.activation = options.activation;
  n.count = static_cast<double>(channels / num_groups) * product(x.sizes(), 2);
  TS_CHECK(n.count * static_cast<double>(x.sizes()[0]) != 1, op.name,
           "needs more than one value per channel, given input {}", x.sizes().str());
  return channel_norm(n, {x, weight, bias, {}, {}}).y;
}

Tensor batch_norm(const Tensor& x, const RunningStatistics& running, const Tensor& weight, const Tensor& bias,
                  const BatchNormOptions& options) {
  static const OpDef op{"batch_norm"};
  check_input(op.name, x, weight, bias);
  check_running(op.name, x, running);
  TS_CHECK(options.training ? options.eps > 0 : options.eps >= 0, op.name, "eps is {}, {} is needed",
           options.eps, options.training ? "in training a positive number" : "at least 0");
  if (!options.training)
    return by_running(op, {x, weight, bias, running.mean, running.var}, options.eps, options.activation);
  check_moving(op.name, running);
  ChannelNorm n = channel_norm_of(op, x, options.eps);
  n.per_sample = false;
  n.shared = options.shared;
  n.activation = options.activation;
  n.count = static_cast<double>(x.sizes()[0]) * product(x.sizes(), 2);
  TS_CHECK(n.count != 1 || n.shared.mesh.defined(), op.name,
           "training needs more than one value per channel, given input {}", x.sizes().str());
  const ChannelNormResult result = channel_norm(n, {x, weight, bias, {}, {}});
  if (running.mean.defined()) {
    const NoGrad guard;
    RunningUpdate(result.statistics, 0, options.momentum).move(running, options.shared);
  }
  return result.y;
}

Tensor instance_norm(const Tensor& x, const RunningStatistics& running, const Tensor& weight,
                     const Tensor& bias, const InstanceNormOptions& options) {
  static const OpDef op{"instance_norm"};
  check_input(op.name, x, weight, bias);
  check_running(op.name, x, running);
  if (!options.use_input_stats)
    return by_running(op, {x, weight, bias, running.mean, running.var}, options.eps, options.activation);
  check_moving(op.name, running);
  ChannelNorm n = channel_norm_of(op, x, options.eps);
  n.eps.flat_to_zero = true;
  n.activation = options.activation;
  n.count = product(x.sizes(), 2);
  TS_CHECK(n.count != 1, op.name, "needs more than one value per channel of a sample, given input {}",
           x.sizes().str());
  const ChannelNormResult result = channel_norm(n, {x, weight, bias, {}, {}});
  if (running.mean.defined()) {
    const NoGrad guard;
    RunningUpdate(result.statistics, n.count, options.momentum).move(running, options.shared);
  }
  return result.y;
}

}  // namespace tessera
