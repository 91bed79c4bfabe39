#include "ops/norm/channel_norm.h"

#include <array>
#include <limits>
#include <numeric>

#include "ops/elementwise/elementwise.h"
#include "ops/kernels.h"
#include "ops/memory_order.h"
#include "ops/norm/channel_slabs.h"
#include "ops/norm/norm_kernels.h"
#include "ops/reduce/merge_kernel.h"
#include "ops/reduce/reduce.h"
#include "ops/shape/layout_ops.h"
#include "runtime/copy.h"

namespace tessera {
namespace {

// Whether the kernels take x with its channels innermost; else in row-major order.
bool channels_last(const Array& x) {
  return x.size(1) > 1 && x.stride(1) == 1 && x.numel() > x.size(0) * x.size(1) && !x.is_contiguous();
}
Dims channels_last_order(int dims) {
  Dims order{0};
  for (int d = 2; d < dims; ++d) order.push_back(d);
  order.push_back(1);
  return order;
}
// [N, C, S] view of local data, copied where they do not lie so.
Array as_channels(const Array& x, bool last) {
  std::int64_t row = 1;
  for (int d = 2; d < x.dim(); ++d) row *= x.size(d);
  if (!last) return x.contiguous().reshape({x.size(0), x.size(1), row});
  const Array inside = x.permute(channels_last_order(x.dim()));
  const auto view = [&](const Array& a) { return a.reshape({x.size(0), row, x.size(1)}).transpose(1, 2); };
  const Array rows = view(inside);
  return cpu::channels_innermost(rows) ? rows : view(inside.contiguous());
}
Array empty_channels(const Array& x, bool last) {
  return last ? empty_in_order(channels_last_order(x.dim()), x.sizes(), x.dtype(), x.device())
              : Array::empty(x.sizes(), x.dtype(), x.device());
}
Array dense(const Array& a) { return a.defined() ? a.contiguous() : a; }

// That of a plain call, kept from one to the next of its kind.
std::shared_ptr<const ChannelPlan> plain_plan(const ChannelNorm& n) {
  struct Last {
    std::array<std::int64_t, 3> of{-1, -1, -1};
    std::shared_ptr<const ChannelPlan> plan;
  };
  thread_local Last last;
  const std::array<std::int64_t, 3> of{static_cast<std::int64_t>(n.per_sample), n.groups, n.sizes[1]};
  if (last.of != of) last = {of, std::make_shared<ChannelPlan>(channel_plan(n, nullptr))};
  return last.plan;
}

// What the local function works with; the plan of a sharded call is cached.
struct Setup {
  std::shared_ptr<const void> plan;
  Communicator group;   // of the ranks that hold parts of the same statistics
  bool shared = false;  // the batch is shared out among them
  Setup(const ChannelNorm& n, const LocalCall& l, std::size_t x)
      : plan(l.plan ? l.plan->extra : plain_plan(n)),
        group(channel_group(n, get(), l.in_spec(x))),
        shared(shared_group(n, l.in_spec(x)).defined()) {}
  const ChannelPlan& get() const { return *static_cast<const ChannelPlan*>(plan.get()); }
};

// A message [1, n] with the number of elements behind it, in two terms.
Array with_count(const Array& message, double count) {
  const std::int64_t n = message.size(1);
  const Array longer = Array::empty({1, n + 2}, message.dtype(), message.device());
  const double head = static_cast<double>(static_cast<float>(count));
  longer.slice(1, 0, n).copy_(message);
  longer.slice(1, n, 1).fill_(head);
  longer.slice(1, n + 1, 1).fill_(count - head);
  return longer;
}

std::vector<double> counts_in(const Array& messages) {
  const std::int64_t n = messages.size(1) - 2;
  std::vector<double> counts;
  for (std::int64_t p = 0; p < messages.size(0); ++p)
    counts.push_back(messages.device() == Device::Meta
                         ? 1.0
                         : messages.at(p * (n + 2) + n) + messages.at(p * (n + 2) + n + 1));
  return counts;
}

// The same on a device: its host does not hear of them.
Array counts_there(const Array& messages) {
  const std::int64_t n = messages.size(1) - 2;
  const auto column = [&](std::int64_t i) {
    return messages.slice(1, i, 1).reshape({messages.size(0)}).to(DType::F64).contiguous();
  };
  Array counts = column(n).clone();
  add_into(counts, column(n + 1));
  return counts;
}

// Elements of a statistic: a number, or on a device where only the ranks' messages say it F64 [1] there.
struct Count {
  double value = 0;
  Array there;
};

// The moments [3, rows] of all ranks, merged into the first three rows of stats: one message. Without other
// ranks the moments must be these rows.
Count complete_moments(const Setup& s, const Array& moments, const Array& stats, const ChannelNorm& n,
                       double own_count) {
  if (!s.group.defined()) return {n.count, {}};  // they are these rows
  const std::int64_t rows = moments.size(1);
  const std::int64_t ranks = s.group.size();
  Array message = moments.reshape({1, 3 * rows});
  if (s.shared) message = with_count(message, own_count);
  const Array all = Array::empty({ranks, message.size(1)}, message.dtype(), message.device());
  s.group.all_gather(all, message).wait();
  const bool there = s.shared && all.device() == Device::Cuda;
  const Array told = there ? counts_there(all) : Array();
  std::vector<double> counts;
  if (!there) counts = s.shared ? counts_in(all) : s.get().counts;
  const Array parts = all.slice(1, 0, 3 * rows).contiguous().reshape({ranks, 3, rows});
  const auto row = [&](std::int64_t i) { return stats.slice(0, i, 1).reshape({rows}); };
  kernels::merge_moments(stats.device(), {row(0), row(1), row(2), parts, counts, told});
  if (there) return {0, sum(Tensor(told), {0}, true).local()};
  return {s.shared ? std::accumulate(counts.begin(), counts.end(), 0.0) : n.count, {}};
}

// From sums of squares to variances, and the number of elements behind them.
void finish_statistics(const Array& stats, const Count& count) {
  if (!count.there.defined()) return kernels::finish_statistics(stats.device(), {stats, count.value});
  const Array var = stats.slice(0, 2, 1);
  stats.slice(0, 3, 1).copy_(count.there);
  const Tensor divisor = clamp(Tensor(count.there), 1.0, std::numeric_limits<double>::infinity());
  var.copy_(div(Tensor(var.to(DType::F64)), divisor).local());
}

void statistics_of(const Setup& s, const Array& x, const Array& stats, const ChannelNorm& n) {
  const Array moments =
      s.group.defined() ? Array::empty({3, stats.size(1)}, stats.dtype(), x.device()) : stats.slice(0, 0, 3);
  kernels::channel_moments(x.device(), {moments, x, s.get().groups});
  const double own = static_cast<double>(x.size(0)) * static_cast<double>(x.size(2));
  const Count count = complete_moments(s, moments, stats, n, own);
  TS_CHECK(count.there.defined() || count.value != 1 || n.per_sample, n.op->name,
           "training needs more than one value per channel; the batch that is shared out has one");
  finish_statistics(stats, count);
}

// One slab of a whole call, its statistics included.
void normalize_slab(const ChannelSlab& slab, const cpu::ChannelNormArgs& whole, double count) {
  const std::int64_t rows = slab.groups.groups;
  const Array x = slab.of(whole.x);
  const Array stats = Array::empty({4, rows}, whole.stats.dtype(), x.device());
  kernels::channel_moments(x.device(), {stats.slice(0, 0, 3), x, slab.groups});
  finish_statistics(stats, {count, {}});
  whole.stats.slice(1, slab.row, rows).copy_(stats);
  kernels::channel_norm(x.device(), {slab.of(whole.y), x, stats, slab.of_vector(whole.weight),
                                     slab.of_vector(whole.bias), whole.eps, slab.groups, whole.activation});
}

void forward(LocalCall& l, const ChannelNorm& n) {
  const Setup s(n, l, 0);
  const cpu::ChannelGroups& groups = s.get().groups;
  const bool last = channels_last(l.in[0]);
  const Array x = as_channels(l.in[0], last);
  const DType acc = x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  const Array stats = Array::empty({4, groups.rows(x.size(0))}, acc, x.device());
  l.out[0] = empty_channels(l.in[0], last);
  const cpu::ChannelNormArgs args{
      as_channels(l.out[0], last), x, stats, dense(l.in[1]), dense(l.in[2]), n.eps, groups, n.activation};
  std::vector<ChannelSlab> slabs;
  if (!n.given && !s.group.defined()) slabs = channel_slabs(x, groups, 2);
  for (const ChannelSlab& slab : slabs) normalize_slab(slab, args, n.count);
  if (slabs.empty()) {
    if (n.given) {
      kernels::given_statistics(x.device(), {stats, l.in[3], l.in[4]});
    } else {
      statistics_of(s, x, stats, n);
    }
    kernels::channel_norm(x.device(), args);
  }
  l.out[1] = n.per_sample ? stats.reshape({4, x.size(0), groups.groups}) : stats;
}

// x as it is, but where all ranks have all channels and a vector of the channels is cut: then x is cut alike,
// which moves nothing.
SpecPtr input_spec(const std::vector<SpecPtr>& in, const ChannelNorm& n) {
  const SpecPtr x = without_partial(*in[0]);
  for (std::size_t i = 1; i < in.size() && !x->cut(1); ++i) {
    if (!in[i] || !in[i]->cut(0)) continue;
    Placements placements = x->placements();
    bool free = true;
    for (const int a : in[i]->cut(0)->axes) {
      Placement& p = placements[static_cast<std::size_t>(a)];
      free = free && p.is_replicate();
      p = Shard(1);
    }
    std::vector<std::optional<DimCut>> cuts;
    for (int d = 0; d < x->dim(); ++d)
      cuts.push_back(d == 1 ? *in[i]->cut(0) : x->cut(d) ? std::optional(*x->cut(d)) : std::nullopt);
    if (!free) continue;
    const SpecPtr cut = ShardSpec::make(x->mesh(), placements, x->sizes(), std::move(cuts));
    if (groups_whole(n, *cut)) return cut;
  }
  return x;
}

Strategy forward_plan(const std::vector<SpecPtr>& in, const ChannelNorm& n) {
  const SpecPtr x = input_spec(in, n);
  const SpecPtr of_channels = channel_vector_spec(*x);
  Strategy s{{x}, {x, channel_statistics_spec(n, *x)}, 0};
  for (std::size_t i = 1; i < in.size(); ++i) s.inputs.push_back(in[i] ? of_channels : nullptr);
  s.extra = std::make_shared<ChannelPlan>(channel_plan(n, x.get()));
  return s;
}

// x's spec, with sums that are owed left owed where x is the same on all.
SpecPtr linear_spec(const ShardSpec& dy, const ShardSpec& x) {
  Placements placements = x.placements();
  for (std::size_t a = 0; a < placements.size(); ++a)
    if (placements[a].is_replicate() && dy.placements()[a] == Partial()) placements[a] = Partial();
  return with_placements(x, placements);
}

Strategy backward_plan(const std::vector<SpecPtr>& in, const ChannelNorm& n) {
  SpecPtr x = in[1];
  for (int d = 0; d < x->dim(); ++d) x = cut_along(x, d, *in[0], d);
  const SpecPtr dy = linear_spec(*in[0], *x);
  const SpecPtr of_channels = channel_gradient_spec(*dy);
  Strategy s{{dy, x, channel_statistics_spec(n, *x)}, {dy, of_channels, of_channels}, 0};
  for (std::size_t i : {3, 4}) s.inputs.push_back(in[i] ? channel_vector_spec(*x) : nullptr);
  s.extra = std::make_shared<ChannelPlan>(channel_plan(n, x.get()));
  return s;
}

struct Wanted {
  bool x, weight, bias;
};

// A result of the channels that samples add to one after another, in the type of the statistics.
struct ChannelTotal {
  Array result;  // undefined: not wanted
  Array total;
  ChannelTotal(const Array& to, DType type)
      : result(to), total(to.defined() ? Array::zeros(to.sizes(), type, to.device()) : to) {}
  Array part(const ChannelSlab& slab) const {
    return result.defined() ? Array::empty({slab.channels}, result.dtype(), result.device()) : result;
  }
  void add(const ChannelSlab& slab, const Array& part) const {
    if (result.defined()) add_into(slab.of_vector(total), part.to(total.dtype()));
  }
  void finish() const {
    if (result.defined()) result.copy_(total);
  }
};

// One slab of a whole call: its sums and, as long as its maps are in the cache, its gradient.
void gradient_slab(const ChannelSlab& slab, const cpu::ChannelSumsArgs& whole,
                   const cpu::ChannelGradientArgs& gradient, const std::array<ChannelTotal, 2>& totals) {
  const std::int64_t rows = slab.groups.groups;
  const Array stats = whole.stats.slice(1, slab.row, rows).contiguous();
  const Array sums = Array::empty({2, rows}, stats.dtype(), stats.device());
  const Array dweight = totals[0].part(slab);
  const Array dbias = totals[1].part(slab);
  const Array x = slab.of(whole.x);
  const Array weight = slab.of_vector(whole.weight);
  const Array bias = slab.of_vector(whole.bias);
  kernels::channel_norm_sums(
      x.device(), {sums, dweight, dbias, slab.of(whole.dy), x, stats, weight, whole.eps, slab.groups, bias,
                   whole.activation, whole.dz.defined() ? slab.of(whole.dz) : Array()});
  totals[0].add(slab, dweight);
  totals[1].add(slab, dbias);
  kernels::channel_norm_gradient(x.device(), {slab.of(gradient.dx), slab.of(gradient.dy), x, stats, weight,
                                              sums, gradient.eps, slab.groups, bias, gradient.activation});
}

void backward(LocalCall& l, const ChannelNorm& n, const Wanted& wanted) {
  const Setup s(n, l, 1);
  const cpu::ChannelGroups& groups = s.get().groups;
  const bool last = channels_last(l.in[1]);
  const Array x = as_channels(l.in[1], last);
  const Array dy = as_channels(l.in[0], last);
  const Array stats = l.in[2].contiguous().reshape({4, groups.rows(x.size(0))});
  const Array weight = dense(l.in[3]);
  const Array bias = dense(l.in[4]);
  l.out[0] = empty_channels(l.in[1], last);
  for (std::size_t i : {1, 2}) l.out[i] = Array::empty({x.size(1)}, x.dtype(), x.device());
  Array sums;
  if (wanted.x && !n.given) sums = Array::empty({2, stats.size(1)}, stats.dtype(), x.device());
  const Array dx = as_channels(l.out[0], last);
  // dx holds the gradient of what the activation was given until it is finished.
  const bool keeps =
      sums.defined() && x.device() == Device::Cpu && cpu::channel_norm_keeps_slopes(x, n.activation);
  const cpu::ChannelSumsArgs summed{sums,
                                    wanted.weight ? l.out[1] : Array(),
                                    wanted.bias ? l.out[2] : Array(),
                                    dy,
                                    x,
                                    stats,
                                    weight,
                                    n.eps,
                                    groups,
                                    bias,
                                    n.activation,
                                    keeps ? dx : Array()};
  const cpu::ChannelGradientArgs gradient{
      dx,   keeps ? dx : dy, x,      stats, weight,
      sums, n.eps,           groups, bias,  keeps ? NormActivation::None : n.activation};
  if (sums.defined() && !s.group.defined()) {
    const std::vector<ChannelSlab> slabs = channel_slabs(x, groups, 3);
    if (!slabs.empty()) {
      const std::array totals{ChannelTotal(summed.dweight, stats.dtype()),
                              ChannelTotal(summed.dbias, stats.dtype())};
      for (const ChannelSlab& slab : slabs) gradient_slab(slab, summed, gradient, totals);
      for (const ChannelTotal& t : totals) t.finish();
      return;
    }
  }
  if (sums.defined() || wanted.weight || wanted.bias) kernels::channel_norm_sums(x.device(), summed);
  if (sums.defined() && s.group.defined()) s.group.all_reduce(sums, ReduceOp::Sum).wait();
  if (wanted.x) kernels::channel_norm_gradient(x.device(), gradient);
}

Tensors fused_backward(const BackwardContext& c, const Tensor& dy, const ChannelNormSaved& saved,
                       const ChannelNorm& n) {
  static const OpDef op{"channel_norm_backward"};
  const Tensor weight = saved.weight.unpack(n.op->name);
  const Tensor bias = n.activation == NormActivation::None ? Tensor() : saved.bias.unpack(n.op->name);
  const std::array<Tensor, 5> inputs{dy, saved.x.unpack(n.op->name), saved.statistics, weight, bias};
  const Dims channels{n.sizes[1]};
  const std::array<Dims, 3> sizes{n.sizes, channels, channels};
  const Wanted wanted{c.needs(0), weight.defined() && c.needs(1), saved.bias.defined() && c.needs(2)};
  auto plan = [&](const std::vector<SpecPtr>& in) { return backward_plan(in, n); };
  auto local = [&](LocalCall& l) { backward(l, n, wanted); };
  OpCall call_args;
  call_args.op = &op;
  call_args.inputs = inputs;
  call_args.output_sizes = sizes;
  call_args.parameters = n.hash();
  call_args.plan = plan;
  call_args.local = local;
  Tensors grads = call(call_args);
  if (!wanted.x) grads[0] = Tensor();
  if (!wanted.weight) grads[1] = Tensor();
  if (!wanted.bias) grads[2] = Tensor();
  grads.resize(5);  // none for given statistics
  return grads;
}

}  // namespace

ChannelNormResult channel_norm(const ChannelNorm& n, const ChannelNormInputs& in) {
  const std::array<Tensor, 5> inputs{in.x, in.weight, in.bias, in.mean, in.var};
  const std::array<Dims, 2> sizes{n.sizes, n.statistics_sizes()};
  auto plan = [&](const std::vector<SpecPtr>& specs) { return forward_plan(specs, n); };
  auto local = [&](LocalCall& l) { forward(l, n); };
  auto gradient = [&](std::span<const Tensor> used, std::span<const Tensor> out) -> GradFunction {
    ChannelNormSaved saved{SavedTensor(used[0]), SavedTensor(used[1]), SavedTensor(used[2]), out[1].detach()};
    return [n, saved](const BackwardContext& c, const Tensors& g) {
      return grad_enabled() ? channel_norm_composed(c, g[0], saved, n) : fused_backward(c, g[0], saved, n);
    };
  };
  OpCall c;
  c.op = n.op;
  c.inputs = inputs;
  c.output_sizes = sizes;
  c.parameters = n.hash();
  c.plan = plan;
  c.local = local;
  c.gradient = gradient;
  const Tensors out = call(c);
  return {out[0], without_gradient(out[1])};
}

double statistics_count(const ChannelNorm& n, const Tensor& statistics) {
  const Array& a = statistics.local();
  if (!n.shared.mesh.defined() || a.numel() == 0 || a.device() == Device::Meta) return n.count;
  return a.at(3 * (a.numel() / 4));
}

}  // namespace tessera
