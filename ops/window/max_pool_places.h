// Where windows and their elements lie in arrays and in the map. Internal to the kernels of max_pool.
#pragma once
#include <algorithm>
#include <span>

#include "ops/window/max_pool_kernels.h"

namespace tessera::cpu {

// Row o of a matrix: the positions it reads.
inline std::span<const std::int64_t> row(const SparseRows& rows, std::int64_t o) {
  const std::int64_t begin = rows.first[static_cast<std::size_t>(o)];
  const std::int64_t end = rows.first[static_cast<std::size_t>(o) + 1];
  return {rows.index.data() + begin, static_cast<std::size_t>(end - begin)};
}

// The positions that a row reads at most.
inline std::int64_t most_taps(const SparseRows& rows) {
  std::int64_t most = 0;
  for (std::int64_t o = 0; o < rows.rows(); ++o) most = std::max(most, std::ssize(row(rows, o)));
  return most;
}

inline std::int64_t offset(const Array& a, std::int64_t n, std::int64_t c) {
  return n * a.stride(0) + c * a.stride(1);
}

// Of a place of the buffer in the map.
inline std::int64_t position(const PooledMap& at, std::int64_t d, std::int64_t h, std::int64_t w) {
  return ((d + at.base[0]) * at.map[1] + h + at.base[1]) * at.map[2] + w + at.base[2];
}

}  // namespace tessera::cpu
