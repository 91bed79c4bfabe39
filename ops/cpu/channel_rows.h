// The channel norms on data whose channels lie innermost: [N, C, S] as rows of C numbers.
//
// The vector kernels see wide rows, of as many rows as make a few hundred numbers where channels are few,
// with the numbers of the channels repeated along them; so any number of channels fills the registers. Sums
// go column by column of a wide row, in blocks that stay in the cache; columns of one channel are joined at
// the end of a part. Parts do not depend on the number of threads.
#pragma once
#include <numeric>
#include <utility>

#include "ops/cpu/channel_blocks.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

struct ChannelRows {
  std::int64_t samples, rows, channels;
  std::int64_t together = 1;   // rows in a wide row
  std::int64_t part_rows = 1;  // a multiple of that

  // With one set of statistics all samples are one, where they follow each other in memory.
  ChannelRows(std::initializer_list<const Array*> data, const ChannelGroups& groups) {
    const Array& x = **data.begin();
    samples = x.size(0);
    rows = x.size(2);
    channels = x.size(1);
    if (numel() == 0) return;
    bool one = !groups.per_sample;
    for (const Array* a : data) one = one && a->stride(0) == rows * channels;
    if (one) rows *= std::exchange(samples, 1);
    constexpr std::int64_t kWide = 256;
    constexpr std::int64_t kVector = 16;  // elements of the longest one
    if (channels < kWide) {
      const std::int64_t whole = kVector / std::gcd(kVector, channels);  // that many rows fill vectors
      together = kWide / channels;
      if (together >= whole) together -= together % whole;
      if (together < whole && whole * channels <= 4 * kWide) together = whole;
      together = std::min(together, std::max<std::int64_t>(rows / 4, 1));
    }
    part_rows = ceil_div(std::max<std::int64_t>(65536 / channels, 256), together) * together;
  }
  std::int64_t width() const { return together * channels; }
  std::int64_t numel() const { return samples * rows * channels; }
  std::int64_t cuts() const { return ceil_div(rows, part_rows); }  // of a sample
  std::int64_t parts() const { return samples * cuts(); }
  // Wide rows of a block for sums: it is in the cache, and float accumulators do for its columns.
  std::int64_t block_rows() const { return std::clamp<std::int64_t>(8192 / width(), 4, 32); }
};

struct RowPart {
  std::int64_t index, sample, first, rows;
};

// body(part) for all parts, short ones together on one thread.
template <class Body>
void for_row_parts(const ChannelRows& r, const ChannelPass& pass, const Body& body) {
  if (r.numel() == 0) return;
  const std::int64_t cuts = r.cuts();
  const std::int64_t parts = r.parts();
  const std::int64_t group = std::max<std::int64_t>(1, 16384 * parts / r.numel());
  parallel_for(ceil_div(parts, group), threads_for(pass.flops), [&](std::int64_t piece) {
    for (std::int64_t k = piece * group; k < std::min(parts, (piece + 1) * group); ++k) {
      const std::int64_t i = pass.from_end ? parts - 1 - k : k;
      const std::int64_t first = i % cuts * r.part_rows;
      body(RowPart{i, i / cuts, first, std::min(r.part_rows, r.rows - first)});
    }
    if (pass.past) stream_fence();
  });
}

// Wide rows of the first block of a part, and of any other at most.
struct WideBlocks {
  std::int64_t first, most;
};

// body(offset in the sample, wide rows, columns) block by block; what is left at the end is one shorter row.
template <class Body>
void for_wide_rows(const ChannelRows& r, const RowPart& part, const WideBlocks& blocks, const Body& body) {
  const std::int64_t full = part.rows / r.together;
  const std::int64_t start = part.first * r.channels;
  for (std::int64_t i = 0, n = 0; i < full; i += n) {
    n = std::min(i == 0 ? blocks.first : blocks.most, full - i);
    body(start + i * r.width(), n, r.width());
  }
  const std::int64_t rest = part.rows % r.together;
  if (rest > 0) body(start + full * r.width(), std::int64_t{1}, rest * r.channels);
}

// Wide rows of the numbers of(c), one for each of the `terms`.
template <class T, int terms, class Of>
const T* spread_numbers(const ChannelRows& r, Workspace& scratch, const Of& of) {
  T* to = scratch.take<T>(terms * r.width());
  for (std::int64_t c = 0; c < r.channels; ++c) {
    const std::array<T, terms> v = of(c);
    for (int t = 0; t < terms; ++t) to[t * r.width() + c] = v[static_cast<std::size_t>(t)];
  }
  for (int t = 0; t < terms; ++t)
    for (std::int64_t i = r.channels; i < r.width(); i += r.channels)
      std::copy_n(to + t * r.width(), r.channels, to + t * r.width() + i);
  return to;
}

// The norms' four parts on such data; what they return is joined to results as for contiguous data.
template <class S>
GroupMoments row_moments(const ChannelMomentsArgs& args);
template <class S>
void normalize_rows(const ChannelNormArgs& args);
template <class S>
ChannelSums row_sums(const ChannelSumsArgs& args);
template <class S>
void gradient_rows(const ChannelGradientArgs& args);

}  // namespace tessera::cpu
