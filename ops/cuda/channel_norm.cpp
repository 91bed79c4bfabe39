// The channel norms on the device: the checks of ops/cpu, memory for the parts of sums, then the launches.
#include "ops/cpu/channel_norm.h"

#include "ops/cpu/channel_blocks.h"
#include "ops/cuda/channel_kernels.h"
#include "ops/cuda/register.h"
#include "ops/kernels.h"
#include "ops/norm/norm_kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/cuda/staging.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

using cpu::check_channel_data;
using cpu::check_channel_statistics;
using cpu::check_channel_vector;

void* raw_or_null(const Array& a) { return a.defined() ? a.raw() : nullptr; }
Array doubles(std::int64_t n) { return Array::empty({n}, DType::F64, Device::Cuda); }

// The data as kernels see them. Groups of equal numbers of channels, one after another, are told by two
// numbers; others by a table that lies on the device.
struct Described {
  ChannelData data;
  Array table;
};
Described described(const Array& x, const cpu::ChannelGroups& groups) {
  Described d;
  d.data.samples = x.size(0);
  d.data.channels = x.size(1);
  d.data.row = x.size(2);
  d.data.innermost = !x.is_contiguous();
  d.data.dtype = x.dtype();
  d.data.per_sample = groups.per_sample;
  d.data.groups = groups.groups;
  const std::vector<std::int64_t>& of = groups.of_channel;
  if (of.empty()) return d;
  // A group that begins after the first channel and ends before the last is whole.
  const auto count = [&](std::int64_t g) { return std::count(of.begin(), of.end(), g); };
  d.data.per =
      std::max(count(of.front()), of.front() == of.back() ? std::ptrdiff_t(1) : count(of.front() + 1));
  d.data.first = (of.front() + 1) * d.data.per - count(of.front());
  for (std::size_t c = 0; c < of.size(); ++c) {
    if (of[c] == (static_cast<std::int64_t>(c) + d.data.first) / d.data.per) continue;
    d.table = Array::empty({std::ssize(of)}, DType::I64, Device::Cuda);
    copy_to_device(d.table.raw(), of.data(), d.table.nbytes(), current_stream());
    d.data.table = d.table.data<std::int64_t>();
    break;
  }
  return d;
}

ChannelOperand operand(const Array& a) {
  const std::int64_t size = a.size(1) * a.size(2);
  return {a.raw(), a.is_contiguous() ? size : a.stride(0)};
}
bool samples_adjoin(std::initializer_list<const Array*> data) {
  return std::all_of(data.begin(), data.end(), [](const Array* a) {
    return a->size(0) <= 1 || a->stride(0) == a->size(1) * a->size(2);
  });
}

// Memory for the numbers of the channels.
template <class Args>
Array numbers_for(const Args& args, const ChannelData& d) {
  return Array::empty({7 * d.sets() * d.channels}, args.stats.dtype(), Device::Cuda);
}
template <class Args>
ChannelNumbers numbers_of(const Args& args, const Array& memory) {
  ChannelNumbers n;
  n.stats = args.stats.raw();
  n.weight = raw_or_null(args.weight);
  n.bias = raw_or_null(args.bias);
  n.eps = args.eps;
  n.activation = args.activation;
  n.numbers = memory.raw();
  return n;
}

void moments_cuda(const cpu::ChannelMomentsArgs& args) {
  const char* op = "channel_moments";
  check_channel_data(op, args.x, args.x);
  check_channel_statistics(op, args.moments, 3, args.x, args.groups);
  if (args.moments.numel() == 0) return;
  const Described d = described(args.x, args.groups);
  ChannelMoments m{d.data, operand(args.x), args.moments.raw(), {}, nullptr};
  m.cuts = moment_cuts(d.data, samples_adjoin({&args.x}));
  const Array partial = doubles(3 * m.cuts.numbers());
  m.partial = partial.data<double>();
  channel_moments(m, current_stream());
  check_launch(op);
}

void norm_cuda(const cpu::ChannelNormArgs& args) {
  const char* op = "channel_norm";
  check_channel_data(op, args.x, args.x);
  check_channel_data(op, args.y, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias}) check_channel_vector(op, *v, args.x);
  if (args.x.numel() == 0) return;
  const Described d = described(args.x, args.groups);
  const Array memory = numbers_for(args, d.data);
  channel_norm({d.data, numbers_of(args, memory), operand(args.y), operand(args.x), {}}, current_stream());
  check_launch(op);
}

void gradient_cuda(const cpu::ChannelGradientArgs& args) {
  const char* op = "channel_norm_gradient";
  for (const Array* a : {&args.x, &args.dy, &args.dx}) check_channel_data(op, *a, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  if (args.sums.defined()) check_channel_statistics(op, args.sums, 2, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias}) check_channel_vector(op, *v, args.x);
  if (args.x.numel() == 0) return;
  const Described d = described(args.x, args.groups);
  const Array memory = numbers_for(args, d.data);
  ChannelNumbers n = numbers_of(args, memory);
  n.sums = raw_or_null(args.sums);
  channel_gradient({d.data, n, operand(args.dx), operand(args.x), operand(args.dy)}, current_stream());
  check_launch(op);
}

void sums_cuda(const cpu::ChannelSumsArgs& args) {
  const char* op = "channel_norm_sums";
  for (const Array* a : {&args.x, &args.dy}) check_channel_data(op, *a, args.x);
  check_channel_statistics(op, args.stats, 4, args.x, args.groups);
  if (args.sums.defined()) check_channel_statistics(op, args.sums, 2, args.x, args.groups);
  for (const Array* v : {&args.weight, &args.bias, &args.dweight, &args.dbias})
    check_channel_vector(op, *v, args.x);
  TS_CHECK(!args.dz.defined(), op, "slopes are not kept on the device");
  const Described d = described(args.x, args.groups);
  const Array memory = numbers_for(args, d.data);
  ChannelSumsOf s;
  s.data = d.data;
  s.numbers = numbers_of(args, memory);
  s.x = operand(args.x);
  s.dy = operand(args.dy);
  s.sums = raw_or_null(args.sums);
  s.dweight = raw_or_null(args.dweight);
  s.dbias = raw_or_null(args.dbias);
  s.cuts = sum_cuts(d.data, samples_adjoin({&args.x, &args.dy}));
  const bool together = s.cuts.by_columns && s.cuts.columns.samples == 1 && !d.data.per_sample;
  s.shares = d.data.numel() == 0 ? 0 : together ? 1 : d.data.samples;
  const Array partial = doubles(s.shares == 0 ? 0 : 2 * s.cuts.numbers());
  const Array local = doubles(2 * s.shares * d.data.channels);
  s.partial = partial.data<double>();
  s.local = local.data<double>();
  channel_sums(s, current_stream());
  check_launch(op);
}

void finish_statistics_cuda(const cpu::FinishStatisticsArgs& args) {
  const Array var = args.stats.slice(0, 2, 1);
  kernels::unary(Device::Cuda, {var, var, cpu::UnaryOp::Affine, 1.0 / std::max(args.count, 1.0), 0.0});
  args.stats.slice(0, 3, 1).fill_(args.count);
}

void given_statistics_cuda(const cpu::GivenStatisticsArgs& args) {
  const Dims row{1, args.stats.size(1)};
  args.stats.slice(0, 0, 1).copy_(args.mean.reshape(row));
  args.stats.slice(0, 1, 1).zero_();
  args.stats.slice(0, 2, 1).copy_(args.var.reshape(row));
  args.stats.slice(0, 3, 1).fill_(1.0);
}

void move_running_cuda(const cpu::MoveRunningArgs& args) {
  cpu::check_move_running(args);
  if (args.stats.numel() == 0) return;
  RunningStatistic r;
  r.channels = args.stats.size(2);
  r.stats = elements_of(args.stats);
  r.samples = args.stats.size(1);
  std::copy_n(args.stats.strides().begin(), 3, r.strides);
  r.row = args.row;
  r.momentum = args.momentum;
  for (const Array* own : {&args.mean, &args.var}) {
    if (!own->defined()) continue;
    r.running = elements_of(*own);
    r.stride = own->stride(0);
    r.variance = own == &args.var;
    move_running(r, current_stream());
  }
  check_launch("move_running");
}

}  // namespace

void register_channel_norms() {
  kernels::channel_moments.set(Device::Cuda, &moments_cuda);
  kernels::finish_statistics.set(Device::Cuda, &finish_statistics_cuda);
  kernels::given_statistics.set(Device::Cuda, &given_statistics_cuda);
  kernels::move_running.set(Device::Cuda, &move_running_cuda);
  kernels::channel_norm.set(Device::Cuda, &norm_cuda);
  kernels::channel_norm_gradient.set(Device::Cuda, &gradient_cuda);
  kernels::channel_norm_sums.set(Device::Cuda, &sums_cuda);
}

}  // namespace tessera::cuda
