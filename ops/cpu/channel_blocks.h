// What the parts of the channel norms share: blocks of [N, C, S] data and the statistics of a row.
#pragma once
#include <cmath>

#include "ops/cpu/channel_norm.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/simd/norm_table.h"

namespace tessera::cpu {

// Rows at least this long are worked on one by one, shorter ones many at a time.
inline constexpr std::int64_t kLongRow = 32;
// Elements of a block: three of them in float fit the first-level cache.
inline constexpr std::int64_t kChannelBlock = 2048;

struct ChannelShape {
  std::int64_t samples, channels, row;
  explicit ChannelShape(const Array& x) : samples(x.size(0)), channels(x.size(1)), row(x.size(2)) {}
  std::int64_t numel() const { return samples * channels * row; }
  bool long_rows() const { return row >= kLongRow; }
  // Blocks that one row is cut into, or channels that one block takes.
  std::int64_t cuts() const { return long_rows() ? ceil_div(row, kChannelBlock) : 1; }
  std::int64_t together() const {
    return long_rows() ? 1 : std::max<std::int64_t>(1, kChannelBlock / std::max<std::int64_t>(row, 1));
  }
};

// A contiguous run of one sample: part of a channel's row, or the whole rows of a few channels.
struct ChannelBlock {
  std::int64_t sample, channel, channels, offset, length;
};

// body(block) for all blocks, those of neighbours on one thread.
template <class Body>
void for_channel_blocks(const ChannelShape& s, double flops, const Body& body) {
  if (s.numel() == 0) return;
  const std::int64_t cuts = s.cuts();
  const std::int64_t together = s.together();
  const std::int64_t per_sample = ceil_div(s.channels, together) * cuts;
  const std::int64_t blocks = s.samples * per_sample;
  const std::int64_t group = std::max<std::int64_t>(1, 8 * kChannelBlock * blocks / s.numel());
  parallel_for(ceil_div(blocks, group), threads_for(flops), [&](std::int64_t piece) {
    for (std::int64_t i = piece * group; i < std::min(blocks, (piece + 1) * group); ++i) {
      ChannelBlock b{};
      b.sample = i / per_sample;
      b.channel = i % per_sample / cuts * together;
      b.channels = std::min(together, s.channels - b.channel);
      const std::int64_t at = i % cuts * kChannelBlock;
      b.length = s.long_rows() ? std::min(kChannelBlock, s.row - at) : b.channels * s.row;
      b.offset = (b.sample * s.channels + b.channel) * s.row + at;
      body(b);
    }
  });
}

// stats [4, rows] of the forward pass.
template <class T>
class ChannelStatistics {
 public:
  ChannelStatistics(const Array& stats, double eps) : p_(stats.data<T>()), rows_(stats.size(1)), eps_(eps) {}
  T mean(std::int64_t row) const { return p_[row]; }
  double rest(std::int64_t row) const { return static_cast<double>(p_[rows_ + row]); }
  double rstd(std::int64_t row) const {
    return 1.0 / std::sqrt(static_cast<double>(p_[2 * rows_ + row]) + eps_);
  }
  double count(std::int64_t row) const { return static_cast<double>(p_[3 * rows_ + row]); }

 private:
  const T* p_;
  std::int64_t rows_;
  double eps_;
};

// Element c of an optional vector.
template <class S>
double element_or(const Array& a, std::int64_t c, double otherwise) {
  return a.defined() ? static_cast<double>(static_cast<Compute<S>>(a.data<S>()[c])) : otherwise;
}

void check_channel_data(const char* op, const Array& x, const Array& like);
void check_channel_vector(const char* op, const Array& v, const Array& x);
void check_channel_statistics(const char* op, const Array& stats, std::int64_t terms, const Array& x,
                              const ChannelGroups& groups);

}  // namespace tessera::cpu
