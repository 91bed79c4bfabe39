#include "ops/cuda/attention_rule.h"

#include <algorithm>
#include <limits>

namespace tessera::cuda {
namespace {

// Of one key head, with the query heads that share it.
std::int64_t score_bytes(const AttentionGraph& g) {
  constexpr std::int64_t kTile = 128;
  return g.heads / g.key_heads * (cpu::ceil_div(g.rows, kTile) * kTile) *
         (cpu::ceil_div(g.keys, kTile) * kTile) * 2;
}

// Consecutive positions: `size` of them from `position` on, the first of which is number `at`.
struct Run {
  std::int64_t at = 0, size = 0, position = 0;
  std::int64_t end() const { return position + size; }
};
struct Runs {
  int count = 0;
  std::array<Run, 2> run;
};
// False: there are more than two.
bool find_runs(const std::int64_t* positions, std::int64_t n, Runs& runs) {
  for (std::int64_t i = 0; i < n; ++runs.count) {
    if (runs.count == 2) return false;
    const auto at = [&](std::int64_t number) { return positions == nullptr ? number : positions[number]; };
    Run r{i, 0, at(i)};
    for (; i < n && at(i) == r.end(); ++i) ++r.size;
    runs.run[static_cast<std::size_t>(runs.count)] = r;
  }
  return true;
}

// Keys before the first row are seen by all rows; of those from there on, row i sees 0 to i.
void add_pieces(AttentionPieces& to, const Run& rows, const Run& keys) {
  const auto add = [&](const AttentionPiece& p) { to.piece[static_cast<std::size_t>(to.count++)] = p; };
  const std::int64_t before = std::clamp<std::int64_t>(rows.position - keys.position, 0, keys.size);
  if (before > 0) add({rows.at, rows.size, keys.at, before, false});
  const std::int64_t after = std::clamp<std::int64_t>(keys.position - rows.position, 0, rows.size);
  if (before == keys.size || after == rows.size) return;
  // Keys beyond the last row are seen by none.
  const std::int64_t count = std::min(keys.size - before, rows.size - after);
  const bool single = count == 1;  // one key, which all of these rows see
  add({rows.at + after, rows.size - after, keys.at + before, count, !single});
}

}  // namespace

AttentionPieces pieces_of(const cpu::AttentionMask& mask, const cpu::AttentionSizes& s) {
  AttentionPieces pieces;
  if (mask.mask.defined() || mask.dropout.any()) return pieces;
  if (!mask.causal) return {true, 1, {{{0, s.rows, 0, s.keys, false}}}};
  Runs rows;
  Runs keys;
  if (!find_runs(mask.q_positions, s.rows, rows) || !find_runs(mask.k_positions, s.keys, keys)) return pieces;
  pieces.known = true;
  for (int i = 0; i < rows.count; ++i)
    for (int j = 0; j < keys.count; ++j)
      add_pieces(pieces, rows.run[static_cast<std::size_t>(i)], keys.run[static_cast<std::size_t>(j)]);
  return pieces;
}

AttentionGraph attention_form(AttentionPass pass, DType dtype, const cpu::AttentionSizes& s, bool causal,
                              double scale) {
  AttentionGraph g;
  g.pass = pass;
  g.dtype = dtype;
  g.causal = causal;
  g.scale = static_cast<float>(scale);
  g.batch = s.batch;
  g.heads = s.heads;
  g.key_heads = s.key_heads;
  g.rows = s.rows;
  g.keys = s.keys;
  g.d = s.d;
  g.dv = s.dv;
  return g;
}

const char* why_own_kernel(const AttentionGraph& g, const AttentionLimits& limits) {
  if (!is_half(g.dtype)) return "a type that is not of 16 bits";
  if (limits.capability < 80) return "a device before 8.0";
  if (g.batch == 0 || g.heads == 0 || g.rows == 0 || g.keys == 0) return "nothing to be seen";
  if (g.d == 0 || g.dv == 0 || g.d % 8 != 0 || g.dv % 8 != 0) return "heads whose size is no multiple of 8";
  const std::int64_t most = limits.capability / 10 == 9 ? 256 : 128;
  if (g.d > most || g.dv > most) return "heads that are larger than the device's cuDNN takes";
  if (g.rows == 1 || g.keys == 1) return "a single row or key";
  constexpr std::int64_t kCounted = std::numeric_limits<std::int32_t>::max();
  if (g.heads * std::max(g.rows, g.keys) * std::max(g.d, g.dv) > kCounted / g.batch)
    return "more elements than are counted in 32 bits";
  const bool backward = g.pass == AttentionPass::Backward;
  if (backward && limits.capability / 10 == 10 && limits.cudnn < 91800)
    return "other bits every time, by a cuDNN before 9.18 on a device of 10.x";
  if (backward && score_bytes(g) > limits.score_bytes) return "scores of a head that need too much memory";
  return nullptr;
}

AttentionPart largest_part(const AttentionGraph& g, std::int64_t most) {
  const std::int64_t at_once = std::max<std::int64_t>(1, most / score_bytes(g));
  AttentionPart part;
  part.key_heads = std::min(at_once, g.key_heads);
  if (part.key_heads == g.key_heads)
    part.batch = std::min(std::max<std::int64_t>(1, at_once / g.key_heads), g.batch);
  return part;
}

}  // namespace tessera::cuda
