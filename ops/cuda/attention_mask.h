// Which scores of a tile count, and what is added to them.
#pragma once
#include <limits>
#include <type_traits>

#include "ops/cuda/attention_kernels.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {

TS_DEVICE std::int64_t position(const PositionRuns& p, std::int64_t i) {
  if (p.table != nullptr) return Ptr<const std::int64_t>(p.table)[i];
  return i < p.split ? p.first + i : p.second + (i - p.split);
}

struct PositionSpan {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};
// Of the positions first to last - 1, which are in no table.
TS_DEVICE PositionSpan span_of(const PositionRuns& p, std::int64_t first, std::int64_t last) {
  PositionSpan s{position(p, first), position(p, last - 1)};
  if (s.lo > s.hi) s = {s.hi, s.lo};
  if (first < p.split && p.split < last) {
    const std::int64_t before = position(p, p.split - 1);
    const std::int64_t after = position(p, p.split);
    s.lo = after < s.lo ? after : s.lo;
    s.hi = before > s.hi ? before : s.hi;
  }
  return s;
}

// How a tile of scores is masked: not at all, by looking at each, or so that nothing is left of it.
enum class Sight : std::uint8_t { All, Some, None };
struct TileAt {
  std::int64_t batch, head;
  std::int64_t row, rows;  // first, number
  std::int64_t key, keys;
};
TS_DEVICE Sight sight_of(const AttentionMaskElements& m, const TileAt& at) {
  if (!m.causal) return Sight::All;
  if (m.rows.table != nullptr || m.keys.table != nullptr) return Sight::Some;
  const PositionSpan q = span_of(m.rows, at.row, at.row + at.rows);
  const PositionSpan k = span_of(m.keys, at.key, at.key + at.keys);
  if (k.hi <= q.lo) return Sight::All;
  return k.lo > q.hi ? Sight::None : Sight::Some;
}

TS_DEVICE float half_mask(const AttentionMaskElements& m, std::int64_t i) {
  if (m.kind == MaskKind::AddBf16) return load(Ptr<const bf16>(static_cast<const bf16*>(m.data))[i]);
  return load(Ptr<const f16>(static_cast<const f16*>(m.data))[i]);
}

// A score with its mask. `row` and `key` count from the start of the local ones.
template <class T>
TS_DEVICE T masked(const AttentionMaskElements& m, T score, const TileAt& at, std::int64_t row,
                   std::int64_t key) {
  const std::int64_t i =
      at.batch * m.stride[0] + at.head * m.stride[1] + row * m.stride[2] + key * m.stride[3];
  const T hidden = -std::numeric_limits<T>::infinity();
  switch (m.kind) {
    case MaskKind::Keep:
      if (!load(Ptr<const bool>(static_cast<const bool*>(m.data))[i])) return hidden;
      return score;
    case MaskKind::Add:
      return score + Ptr<const T>(static_cast<const T*>(m.data))[i];
    case MaskKind::AddBf16:
    case MaskKind::AddF16:
      // Masks have the type of q or the accumulator's: none of 16 bits beside f64.
      if constexpr (std::is_same_v<T, float>) return score + half_mask(m, i);
      return score;
    default:
      return score;
  }
}

}  // namespace tessera::cuda
