// Norms of large maps, a slab at a time: what has just been read for its statistics is still in the cache
// when it is normalised, and what was read for sums when the gradient is made of them. In row-major memory a
// slab is some channels, where channels lie innermost a sample: few channels of all positions are pieces of
// cache lines and of the pages that processors read ahead in, and cost three times as much to read as what
// lies together. Internal to ops/norm.
#pragma once
#include <vector>

#include "ops/cpu/channel_norm.h"

namespace tessera {

// Whole groups of neighbouring channels of one sample, or of all where these share their statistics.
struct ChannelSlab {
  std::int64_t sample = 0;
  std::int64_t samples = 1;
  std::int64_t channel = 0;
  std::int64_t channels = 0;
  std::int64_t row = 0;       // of the statistics: that of its first group
  cpu::ChannelGroups groups;  // of its own channels

  // Its part of [N, C, S] data, and of a vector of the channels (which may be undefined).
  Array of(const Array& x) const { return x.slice(0, sample, samples).slice(1, channel, channels); }
  Array of_vector(const Array& v) const { return v.defined() ? v.slice(0, channel, channels) : v; }
};

// All of x [N, C, S], in order, so small that `arrays` of a slab's size fit into a cache together, or samples
// of any size whose channels lie innermost; none where it does not pay: small maps, groups beyond the cache,
// other devices.
std::vector<ChannelSlab> channel_slabs(const Array& x, const cpu::ChannelGroups& groups, int arrays);

}  // namespace tessera
