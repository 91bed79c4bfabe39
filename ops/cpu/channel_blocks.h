// What the parts of the channel norms share: blocks of row-major [N, C, S] data, the numbers of a channel
// and the sums of the parts.
#pragma once
#include <array>
#include <cmath>
#include <vector>

#include "ops/cpu/activation_ops.h"
#include "ops/cpu/block_sink.h"
#include "ops/cpu/channel_norm.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/simd/norm_table.h"
#include "runtime/small_buffer.h"

namespace tessera::cpu {

// Rows at least this long are worked on one by one, shorter ones many at a time.
inline constexpr std::int64_t kLongRow = 32;
// Elements of a block: three of them in float fit the first-level cache.
inline constexpr std::int64_t kChannelBlock = 2048;

struct ChannelShape {
  std::int64_t samples, channels, row;
  std::int64_t apart;  // elements from a sample to the next
  explicit ChannelShape(const Array& x)
      : samples(x.size(0)),
        channels(x.size(1)),
        row(x.size(2)),
        apart(samples > 1 ? x.stride(0) : channels * row) {}
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
  std::int64_t cut = 0;  // of a long row
};

struct ChannelPass {
  double flops = 0;
  bool from_end = false;  // a second pass first meets what the one before has left in the cache
  bool past = false;      // stores past the caches
};

// body(block) for all blocks, those of neighbours on one thread.
template <class Body>
void for_channel_blocks(const ChannelShape& s, const ChannelPass& pass, const Body& body) {
  if (s.numel() == 0) return;
  const std::int64_t cuts = s.cuts();
  const std::int64_t together = s.together();
  const std::int64_t per_sample = ceil_div(s.channels, together) * cuts;
  const std::int64_t blocks = s.samples * per_sample;
  const std::int64_t group = std::max<std::int64_t>(1, 8 * kChannelBlock * blocks / s.numel());
  const std::int64_t pieces = ceil_div(blocks, group);
  parallel_for(pieces, threads_for(pass.flops), [&](std::int64_t k) {
    const std::int64_t piece = pass.from_end ? pieces - 1 - k : k;
    for (std::int64_t i = piece * group; i < std::min(blocks, (piece + 1) * group); ++i) {
      ChannelBlock b{};
      b.sample = i / per_sample;
      b.channel = i % per_sample / cuts * together;
      b.channels = std::min(together, s.channels - b.channel);
      b.cut = i % cuts;
      const std::int64_t at = b.cut * kChannelBlock;
      b.length = s.long_rows() ? std::min(kChannelBlock, s.row - at) : b.channels * s.row;
      b.offset = b.sample * s.apart + b.channel * s.row + at;
      body(b);
    }
    if (pass.past) stream_fence();
  });
}

// Element c of an optional vector.
template <class S>
double element_or(const Array& a, std::int64_t c, double otherwise) {
  return a.defined() ? static_cast<double>(static_cast<Compute<S>>(a.data<S>()[c])) : otherwise;
}

// What a channel of a sample is mapped with, from the stats [4, rows] of the forward pass.
template <class S>
class ChannelNumbers {
 public:
  using T = Compute<S>;
  // Of ChannelNormArgs, ChannelSumsArgs or ChannelGradientArgs.
  template <class Args>
  explicit ChannelNumbers(const Args& args)
      : stats_(args.stats.template data<T>()),
        rows_(args.stats.size(1)),
        groups_(args.groups),
        weight_(args.weight),
        bias_(args.bias),
        rstd_(rows_) {
    for (std::int64_t r = 0; r < rows_; ++r)
      rstd_[r] = 1.0 / std::sqrt(args.eps.template beside_variance<T>(stats_, rows_, r));
  }
  T mean(std::int64_t row) const { return stats_[row]; }
  double rest(std::int64_t row) const { return static_cast<double>(stats_[rows_ + row]); }
  double rstd(std::int64_t row) const { return rstd_[row]; }

  // y = (x - v[0]) v[1] + v[2]
  std::array<T, 3> forward(std::int64_t n, std::int64_t c) const {
    const std::int64_t row = groups_.row(n, c);
    const double scale = rstd(row) * element_or<S>(weight_, c, 1.0);
    const double shift = element_or<S>(bias_, c, 0.0) - rest(row) * scale;
    return {mean(row), static_cast<T>(scale), static_cast<T>(shift)};
  }
  // dx = v[0] dy + v[2] (x - v[1]) + v[3]; sums null: the statistics do not depend on x.
  std::array<T, 4> gradient(std::int64_t n, std::int64_t c, const T* sums) const {
    const std::int64_t row = groups_.row(n, c);
    const T factor = static_cast<T>(rstd(row) * element_or<S>(weight_, c, 1.0));
    if (sums == nullptr) return {factor, T(0), T(0), T(0)};
    const auto count = static_cast<double>(stats_[3 * rows_ + row]);
    if (count == 1) return {T(0), mean(row), T(0), static_cast<T>(0.0 * rstd(row))};  // exactly 0, or NaN
    const double per = rstd(row) / count;
    const double slope = -rstd(row) * per * static_cast<double>(sums[rows_ + row]);
    const double shift = -per * static_cast<double>(sums[row]) - slope * rest(row);
    return {factor, mean(row), static_cast<T>(slope), static_cast<T>(shift)};
  }

 private:
  const T* stats_;
  std::int64_t rows_;
  const ChannelGroups& groups_;
  const Array& weight_;
  const Array& bias_;
  SmallBuffer<double> rstd_;
};

// The activation that follows, on blocks in the cache.
template <class T>
class BlockActivation {
 public:
  explicit BlockActivation(NormActivation a) {
    if (a == NormActivation::None) return;
    const auto& table = blocks_of<T>(pointwise_table());
    forward_ = table.unary[static_cast<std::size_t>(forward_op(a))];
    backward_ = table.binary[static_cast<std::size_t>(backward_op(a))];
  }
  explicit operator bool() const { return forward_ != nullptr; }
  void apply(T* y, std::int64_t n) const {
    if (forward_ != nullptr) forward_(y, y, n, T(0), T(0));
  }
  // z, where the activation was applied, becomes dy times its slope there.
  const T* gradient(T* z, const T* dy, std::int64_t n) const {
    backward_(z, dy, z, n, T(0), T(0));
    return z;
  }

 private:
  typename PointwiseBlocks<T>::Unary forward_ = nullptr;
  typename PointwiseBlocks<T>::Binary backward_ = nullptr;
};

// Moments by row of statistics.
struct GroupMoments {
  SmallBuffer<double> count, mean, m2;
  explicit GroupMoments(std::int64_t rows) : count(rows), mean(rows), m2(rows) {}
};
// each(take) calls take(row, count, mean, squared deviations from it) for all parts, twice in the same order:
// deviations are taken around the mean of the whole.
template <class Each>
GroupMoments merged_moments(std::int64_t rows, const Each& each) {
  GroupMoments all(rows);
  each([&](std::int64_t r, double n, double mean, double) {
    all.count[r] += n;
    all.mean[r] += n * mean;
  });
  for (std::int64_t r = 0; r < rows; ++r)
    if (all.count[r] > 0) all.mean[r] /= all.count[r];
  each([&](std::int64_t r, double n, double mean, double squares) {
    const double off = mean - all.mean[r];
    all.m2[r] += squares + n * off * off;
  });
  return all;
}

// Per share of the samples and channel: the sums of dy and of dy (x - mean).
struct ChannelSums {
  std::int64_t shares = 1;
  std::vector<double> dy, product;
  ChannelSums(std::int64_t shares_given, std::int64_t channels)
      : shares(shares_given), dy(static_cast<std::size_t>(shares * channels)), product(dy.size()) {}
};

// x, dy, ... are in the same order of memory.
void check_channel_data(const char* op, const Array& x, const Array& like);
void check_channel_vector(const char* op, const Array& v, const Array& x);
void check_channel_statistics(const char* op, const Array& stats, std::int64_t terms, const Array& x,
                              const ChannelGroups& groups);

}  // namespace tessera::cpu
