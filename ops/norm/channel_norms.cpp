// Group, batch and instance norm: what each checks, and running statistics.
#include "autograd/adjoints.h"
#include "ops/elementwise/elementwise.h"
#include "ops/kernels.h"
#include "ops/norm/channel_norm.h"
#include "ops/random/random.h"
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
    if (complete && lies_here(running.mean) && lies_here(running.var)) return move_both(running);
    const Tensor summed = row_ == 0 ? statistics_ : over_shared_batch(shared, sum(statistics_, {1}));
    const bool plain = !running.mean.is_sharded() && !running.var.is_sharded();
    const Tensor all = plain ? summed.full_tensor() : summed;  // one message for both
    move(running.mean, all, false);
    move(running.var, all, true);
  }

 private:
  // Whether every rank holds, on the host, what its part of `running` moves towards. Specs alone decide, so
  // that all ranks have one answer.
  bool lies_here(const Tensor& running) const {
    if (running.device() != Device::Cpu) return false;
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
  void move_both(const RunningStatistics& running) const {
    const Array& own = statistics_.local();
    const Array sets = row_ == 0 ? own.unsqueeze(1) : own;  // [4, samples, C]
    if (sets.numel() == 0) return;
    double count = 0;
    for (std::int64_t s = 0; s < sets.size(1); ++s) count += sets.at((3 * sets.size(1) + s) * sets.size(2));
    const std::int64_t set = sets.stride(0);
    move_here(running.mean.local(), {sets, 0, set, count, false});
    move_here(running.var.local(), {sets, 2 * set, -1, count, true});
  }
  void move(const Tensor& running, const Tensor& all, bool variance) const {
    const SpecPtr& own = running.spec();
    const bool at_hand = !own && !all.is_sharded();
    const auto row = [&](std::int64_t i) {
      if (at_hand) return all.local().slice(0, i, 1).reshape(running.sizes());
      const Tensor t = reshape(slice(all, 0, i, i + 1), running.sizes());
      return (own ? redistribute(t, own) : t.full_tensor()).local();
    };
    const Array count = row(3);  // each may be a message, also for a rank that then has nothing to do
    const Array fresh = row(variance ? 2 : 0);
    const Array rest = variance ? Array() : row(1);
    if (count.numel() == 0 || count.device() == Device::Meta) return;
    const Array sum = variance ? fresh : sum_of(fresh, rest);
    if (count.device() != Device::Cpu) return move_there(running, sum, count, variance);
    const Array one_set = sum.reshape({1, 1, sum.numel()});
    move_here(running.local(), {one_set, 0, -1, count.at(0), variance});
  }
  struct Fresh {
    const Array& sets;    // [statistics, samples, C], C channels of this rank
    std::int64_t first;   // where the first term of the statistic begins in it,
    std::int64_t second;  // and the second one; -1: there is none
    double count;         // elements of one channel in all samples
    bool variance;
  };
  // A few numbers, for which calls of kernels would take longer than the numbers.
  void move_here(const Array& running, const Fresh& f) const {
    if (f.count == 0) return;
    const double samples = row_ == 0 ? 1.0 : f.count / row_;
    const double n = f.count / samples;
    const double factor = (f.variance ? n / (n - 1.0) : 1.0) / samples;
    dispatch_floating(running.dtype(), [&](auto r) {
      dispatch_floating(f.sets.dtype(), [&](auto v) {
        using R = typename decltype(r)::type;
        using V = typename decltype(v)::type;
        R* const to = running.data<R>();
        const V* const sets = f.sets.data<V>();
        for (std::int64_t c = 0; c < running.numel(); ++c) {
          double value = 0;
          for (std::int64_t s = 0; s < f.sets.size(1); ++s) {
            const std::int64_t at = s * f.sets.stride(1) + c * f.sets.stride(2);
            value += number(sets[f.first + at]);
            if (f.second >= 0) value += number(sets[f.second + at]);
          }
          R& kept = to[c * running.stride(0)];
          kept = rounded<R>((1.0 - momentum_) * number(kept) + momentum_ * factor * value);
        }
      });
    });
    running.bump_version();
  }
  template <class T>
  static double number(const T& value) {
    if constexpr (kHalf<T>)
      return static_cast<double>(static_cast<float>(value));
    else
      return static_cast<double>(value);
  }
  template <class T>
  static T rounded(double value) {
    if constexpr (kHalf<T>)
      return T(static_cast<float>(value));
    else
      return static_cast<T>(value);
  }
  // The same sums on a device, which the host does not wait for.
  void move_there(const Tensor& running, const Array& fresh, const Array& count, bool variance) const {
    const Tensor number(count.to(DType::F64));
    const Tensor kept(running.local().to(DType::F64));
    const Tensor one = ones_like(number);
    const Tensor samples = row_ == 0 ? one : affine(number, 1.0 / row_, 0.0);
    const Tensor n = div(number, samples);
    const Tensor factor = div(variance ? div(n, affine(n, 1.0, -1.0)) : one, samples);
    const Tensor moved =
        add(affine(kept, 1.0 - momentum_, 0.0), mul(Tensor(fresh.to(DType::F64)), factor), momentum_);
    running.local().copy_(where(gt(number, zeros_like(number)), moved, kept).local());
  }
  static Array sum_of(const Array& a, const Array& b) {
    const Array wide = a.to(DType::F64);
    const Array out = Array::empty(a.sizes(), DType::F64, a.device());
    kernels::binary(a.device(), {out, wide, b.to(DType::F64), cpu::BinaryOp::Add});
    return out;
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
  in.mean = in.mean.detach();
  in.var = in.var.detach();
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
