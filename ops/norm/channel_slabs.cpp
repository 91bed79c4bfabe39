#include "ops/norm/channel_slabs.h"

#include "runtime/threads.h"

namespace tessera {
namespace {

// Of the second-level caches of usual processors (1 to 2 MiB a core).
constexpr std::int64_t kCacheBytes = std::int64_t{1} << 20;
constexpr std::int64_t kLeastRow = std::int64_t{1} << 12;     // of the samples' rows that make a slab
constexpr std::int64_t kLeastSample = std::int64_t{1} << 16;  // a slab is of one sample: else calls cost more

// The channel behind those of the group that begins at `channel`.
std::int64_t end_of_group(const cpu::ChannelGroups& groups, std::int64_t channel) {
  const auto& of = groups.of_channel;
  auto end = static_cast<std::size_t>(channel);
  while (end < of.size() && of[end] == of[static_cast<std::size_t>(channel)]) ++end;
  return static_cast<std::int64_t>(end);
}

// As many groups as fit, beginning at `channel`; without channels where not even one does.
ChannelSlab slab_at(const cpu::ChannelGroups& groups, std::int64_t channel, std::int64_t most_channels) {
  const std::int64_t all = std::ssize(groups.of_channel);
  ChannelSlab slab;
  slab.channel = channel;
  slab.groups.groups = 0;
  for (std::int64_t at = channel; at < all;) {
    const std::int64_t end = end_of_group(groups, at);
    if (end - channel > most_channels) break;
    slab.groups.of_channel.insert(slab.groups.of_channel.end(), static_cast<std::size_t>(end - at),
                                  slab.groups.groups);
    ++slab.groups.groups;
    slab.channels = end - channel;
    at = end;
  }
  return slab;
}

// Channels innermost: sample by sample, where each keeps all threads busy. Not of halves, whose gradients of
// the weights would be rounded once a sample.
std::vector<ChannelSlab> whole_samples(const Array& x, const cpu::ChannelGroups& groups) {
  constexpr std::int64_t kLeastShare = std::int64_t{1} << 18;  // of a thread
  const std::int64_t sample_bytes = x.size(1) * x.size(2) * size_of(x.dtype());
  if (!groups.per_sample || x.size(0) == 1 || is_half(x.dtype()) ||
      sample_bytes < kLeastShare * thread_count())
    return {};
  std::vector<ChannelSlab> slabs;
  slabs.reserve(static_cast<std::size_t>(x.size(0)));
  for (std::int64_t sample = 0; sample < x.size(0); ++sample)
    slabs.push_back({sample, 1, 0, x.size(1), sample * groups.groups, groups});
  return slabs;
}

}  // namespace

std::vector<ChannelSlab> channel_slabs(const Array& x, const cpu::ChannelGroups& groups, int arrays) {
  const bool shared = !groups.per_sample && x.size(0) > 1;
  const std::int64_t samples = shared ? x.size(0) : 1;  // of a slab
  const std::int64_t row_bytes = samples * x.size(2) * size_of(x.dtype());
  const std::int64_t slab_bytes = kCacheBytes * thread_count() / arrays;
  if (x.device() != Device::Cpu || x.numel() * size_of(x.dtype()) <= 2 * slab_bytes) return {};
  if (!x.is_contiguous()) return whole_samples(x, groups);
  if (x.size(1) * row_bytes < kLeastSample || (shared && row_bytes < samples * kLeastRow)) return {};
  std::vector<ChannelSlab> slabs;
  for (std::int64_t channel = 0; channel < x.size(1); channel += slabs.back().channels) {
    slabs.push_back(slab_at(groups, channel, slab_bytes / row_bytes));
    if (slabs.back().channels == 0) return {};
    slabs.back().samples = samples;
    slabs.back().groups.per_sample = !shared;
  }
  if (shared) {
    for (ChannelSlab& slab : slabs) slab.row = groups.row(0, slab.channel);
    return slabs;
  }
  const std::size_t per_sample = slabs.size();
  slabs.reserve(per_sample * static_cast<std::size_t>(x.size(0)));
  for (std::int64_t sample = 0; sample < x.size(0); ++sample)
    for (std::size_t i = 0; i < per_sample; ++i) {
      if (sample > 0) slabs.push_back(slabs[i]);
      ChannelSlab& slab = slabs[static_cast<std::size_t>(sample) * per_sample + i];
      slab.sample = sample;
      slab.row = groups.row(sample, slab.channel);
    }
  return slabs;
}

}  // namespace tessera
