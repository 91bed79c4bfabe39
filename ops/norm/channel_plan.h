// Where the statistics of group, instance and batch norm live when the data are cut. Internal to ops/norm.
#pragma once
#include "ops/cpu/channel_norm.h"
#include "ops/norm/norm.h"
#include "ops/op.h"

namespace tessera {

// x is [N, C, spatial…]. Group norm: `groups` statistics a sample; instance norm: the same with groups = C;
// batch norm: C in all, not per sample.
struct ChannelNorm {
  const OpDef* op = nullptr;
  bool per_sample = true;
  std::int64_t groups = 1;
  bool given = false;  // the statistics are inputs
  cpu::NormEps eps = {};
  double count = 1;  // elements of one statistic, over the tensor
  Dims sizes;        // of x
  SharedBatch shared = {};
  NormActivation activation = NormActivation::None;  // no plan depends on it
  Dims statistics_sizes() const { return per_sample ? Dims{4, sizes[0], groups} : Dims{4, groups}; }
  std::size_t hash() const {
    return Hash()
        .add(static_cast<std::int64_t>(per_sample))
        .add(groups)
        .add(static_cast<std::int64_t>(given));
  }
};

// Whether no group of channels lies on two ranks.
bool groups_whole(const ChannelNorm& n, const ShardSpec& x);

// What one rank needs to know, worked out by each alone.
struct ChannelPlan {
  unsigned mask = 0;  // mesh axes over which ranks hold parts of the same statistics
  cpu::ChannelGroups groups;
  std::vector<double> counts;  // per rank of that group and local group of channels: elements of a statistic
};
// spec null: plain.
ChannelPlan channel_plan(const ChannelNorm& n, const ShardSpec* x);

// Specs that go with x's. Channels that are cut at borders of groups cut the statistics too; where a group is
// cut, all ranks along that axis hold all statistics.
SpecPtr channel_statistics_spec(const ChannelNorm& n, const ShardSpec& x);
SpecPtr channel_vector_spec(const ShardSpec& x);  // of weight, bias
// Of their gradients: Partial over axes that cut anything but channels, and where dy is.
SpecPtr channel_gradient_spec(const ShardSpec& dy);

// The ranks that hold parts of the same statistics; undefined: this one alone.
Communicator channel_group(const ChannelNorm& n, const ChannelPlan& plan, const ShardSpec* x);
// Those among which the batch is shared out; undefined where it is not.
Communicator shared_group(const ChannelNorm& n, const ShardSpec* x);

}  // namespace tessera
