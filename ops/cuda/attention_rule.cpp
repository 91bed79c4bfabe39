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

bool counts_from(const std::int64_t* positions, std::int64_t n, std::int64_t first) {
  for (std::int64_t i = 0; i < n; ++i)
    if ((positions == nullptr ? i : positions[i]) != first + i) return false;
  return true;
}

}  // namespace

AttentionSight sight_of(const cpu::AttentionMask& mask, const cpu::AttentionSizes& s) {
  if (mask.mask.defined()) return AttentionSight::Other;
  if (!mask.causal) return AttentionSight::All;
  if (s.rows == 0 || s.keys == 0) return AttentionSight::Other;
  const std::int64_t first = mask.k_positions == nullptr ? 0 : mask.k_positions[0];
  const bool from_the_first =
      counts_from(mask.q_positions, s.rows, first) && counts_from(mask.k_positions, s.keys, first);
  return from_the_first ? AttentionSight::Causal : AttentionSight::Other;
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
  if (g.pass == AttentionPass::Backward && score_bytes(g) > limits.score_bytes)
    return "scores of a head that need too much memory";
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
