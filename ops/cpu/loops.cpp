#include "ops/cpu/loops.h"

namespace tessera::cpu {

StridedLoop make_loop(const Dims& sizes, std::initializer_list<const Dims*> strides) {
  StridedLoop loop;
  loop.operands = static_cast<int>(strides.size());
  loop.numel = numel_of(sizes);
  const Dims& lead = **strides.begin();
  std::array<int, Dims::kMax> order{};
  int n = 0;
  for (int d = 0; d < sizes.size(); ++d) {
    if (sizes[d] == 1) continue;
    int at = n++;  // insertion sort: stable, and there are at most eight
    while (at > 0 && lead[order[static_cast<std::size_t>(at - 1)]] < lead[d]) {
      order[static_cast<std::size_t>(at)] = order[static_cast<std::size_t>(at - 1)];
      --at;
    }
    order[static_cast<std::size_t>(at)] = d;
  }
  for (int i = 0; i < n; ++i) {
    const int d = order[static_cast<std::size_t>(i)];
    bool merge = loop.dims > 0;
    if (merge) {
      std::size_t k = 0;
      for (const Dims* s : strides) merge = merge && loop.strides[k++][loop.dims - 1] == (*s)[d] * sizes[d];
    }
    std::size_t k = 0;
    if (merge) {
      loop.sizes[loop.dims - 1] *= sizes[d];
      for (const Dims* s : strides) loop.strides[k++][loop.dims - 1] = (*s)[d];
      continue;
    }
    loop.sizes.push_back(sizes[d]);
    for (const Dims* s : strides) loop.strides[k++].push_back((*s)[d]);
    ++loop.dims;
  }
  if (loop.dims == 0) {
    loop.dims = 1;
    loop.sizes.push_back(1);
    for (std::size_t k = 0; k < strides.size(); ++k) loop.strides[k].push_back(1);
  }
  return loop;
}

namespace detail {

OuterCounter::OuterCounter(const StridedLoop& loop, std::int64_t first) : loop_(loop), index_(loop.sizes) {
  for (int d = loop.dims - 2; d >= 0; --d) {
    index_[d] = first % loop.sizes[d];
    first /= loop.sizes[d];
    for (std::size_t k = 0; k < static_cast<std::size_t>(loop.operands); ++k)
      offsets_[k] += index_[d] * loop.strides[k][d];
  }
}

void OuterCounter::step() {
  for (int d = loop_.dims - 2; d >= 0; --d) {
    const auto operands = static_cast<std::size_t>(loop_.operands);
    if (++index_[d] < loop_.sizes[d]) {
      for (std::size_t k = 0; k < operands; ++k) offsets_[k] += loop_.strides[k][d];
      return;
    }
    index_[d] = 0;
    for (std::size_t k = 0; k < operands; ++k) offsets_[k] -= (loop_.sizes[d] - 1) * loop_.strides[k][d];
  }
}

}  // namespace detail

LoopPieces::LoopPieces(const StridedLoop& loop, std::int64_t piece) : loop_(loop), piece_(piece) {
  if (loop.numel == 0) return;
  const std::int64_t inner = loop.inner_size();
  outer_ = loop.numel / inner;
  cuts_ = ceil_div(inner, piece);
  group_ = std::max<std::int64_t>(1, piece / inner);
  count_ = cuts_ > 1 ? outer_ * cuts_ : ceil_div(outer_, group_);
}

}  // namespace tessera::cpu
