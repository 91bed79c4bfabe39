#include "runtime/strided.h"

#include <cstdlib>
#include <utility>

namespace tessera::detail {
namespace {

using Index = std::size_t;

void swap_loops(StridedPlan& p, Index a, Index b) {
  std::swap(p.size[a], p.size[b]);
  std::swap(p.to[a], p.to[b]);
  std::swap(p.from[a], p.from[b]);
}

void sort_by_target(StridedPlan& p) {
  for (Index i = 1; i < static_cast<Index>(p.n); ++i)
    for (Index j = i; j > 0 && p.to[j - 1] < p.to[j]; --j) swap_loops(p, j - 1, j);
}

void join_loops(StridedPlan& p) {
  Index kept = 0;
  for (Index i = 1; i < static_cast<Index>(p.n); ++i) {
    if (p.to[kept] == p.to[i] * p.size[i] && p.from[kept] == p.from[i] * p.size[i]) {
      p.size[kept] *= p.size[i];
    } else {
      ++kept;
      p.size[kept] = p.size[i];
    }
    p.to[kept] = p.to[i];
    p.from[kept] = p.from[i];
  }
  p.n = static_cast<int>(kept) + 1;
}

// Brings the loop along which the source is contiguous next to the innermost one, if that makes a transpose.
void find_tiles(StridedPlan& p) {
  if (p.n < 2) return;
  const auto last = static_cast<Index>(p.n - 1);
  if (p.to[last] != 1 || p.from[last] == 0 || p.from[last] == 1) return;
  for (Index k = 0; k < last; ++k) {
    // With a few elements along k their cache lines are shared by neighboring reads anyway.
    if (p.from[k] != 1 || p.size[k] < 8) continue;
    for (Index i = k; i + 1 < last; ++i) swap_loops(p, i, i + 1);
    p.tiled = true;
    return;
  }
}

}  // namespace

std::int64_t StridedPlan::outer(int inner_loops) const {
  std::int64_t count = 1;
  for (int d = 0; d < n - inner_loops; ++d) count *= size[static_cast<Index>(d)];
  return count;
}

std::int64_t StridedPlan::numel() const { return outer(0); }

StridedPlan plan_pair(const Dims& sizes, const Dims& to, const Dims& from) {
  StridedPlan p;
  Index n = 0;
  for (int d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    const bool flip = to[d] < 0;
    if (flip) {
      p.to_shift += to[d] * (sizes[d] - 1);
      p.from_shift += from[d] * (sizes[d] - 1);
    }
    p.size[n] = sizes[d];
    p.to[n] = flip ? -to[d] : to[d];
    p.from[n] = flip ? -from[d] : from[d];
    ++n;
  }
  if (n == 0) {
    p.to[0] = p.from[0] = 1;
    return p;
  }
  p.n = static_cast<int>(n);
  sort_by_target(p);
  join_loops(p);
  find_tiles(p);
  return p;
}

}  // namespace tessera::detail
