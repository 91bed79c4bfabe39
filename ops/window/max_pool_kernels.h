// Largest values over windows, and the two maps that follow the positions where they were found. Knows
// nothing above runtime/.
#pragma once
#include "ops/window/sparse_rows.h"

namespace tessera::cpu {

// Arrays are [N, C, D, H, W] with any strides. The buffer holds positions `base` and on of a map of sizes
// `map` per spatial dim; indices are row-major positions in the whole map.
struct PooledMap {
  Dims base;
  Dims map;
};

// rows[d]: the buffer positions that every output reads along spatial dim d, ascending.
struct MaxPoolArgs {
  Array y;
  Array indices;  // I64, laid out like y; undefined: not wanted
  Array x;
  std::array<const SparseRows*, 3> rows{};
  PooledMap at;
};
void max_pool(const MaxPoolArgs& args);

// buffer[indices] += y; other positions are 0. Not for bf16 and f16.
struct ScatterMaxArgs {
  Array buffer;
  Array y;
  Array indices;
  PooledMap at;
  std::array<const SparseRows*, 3> rows{};  // as above: an index is a position that its output reads
};
void scatter_max(const ScatterMaxArgs& args);
// y = buffer[indices], 0 where an index is -1.
void gather_max(const ScatterMaxArgs& args);

}  // namespace tessera::cpu
