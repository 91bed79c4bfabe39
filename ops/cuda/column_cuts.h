// How sums over the rows of matrices are cut into parts.
#pragma once
#include <cstdint>

#include "runtime/portable.h"

namespace tessera::cuda {

// How the rows of `samples` matrices of equal sizes are cut.
struct ColumnCuts {
  static constexpr int kWide = 32;  // columns of a block
  static constexpr int kLanes = 8;  // rows that a block reads at the same time
  std::int64_t samples = 1;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t length = 1;  // of a part
  std::int64_t parts = 1;   // of a sample, at least one
  TS_PORTABLE std::int64_t strips() const { return (columns + kWide - 1) / kWide; }
  TS_PORTABLE std::int64_t blocks() const { return samples * parts * strips(); }
  // Numbers of one kind.
  TS_PORTABLE std::int64_t numbers() const { return samples * parts * columns; }
};
// Host only. Parts depend on the sizes alone.
inline ColumnCuts column_cuts(std::int64_t samples, std::int64_t rows, std::int64_t columns) {
  ColumnCuts c{samples, rows, columns};
  constexpr std::int64_t kBlocks = 1024;
  constexpr std::int64_t kLeast = 64;
  const std::int64_t without = samples * c.strips();
  const std::int64_t wanted = without == 0 ? 1 : (kBlocks + without - 1) / without;
  const std::int64_t most = (rows + kLeast - 1) / kLeast;
  std::int64_t parts = wanted < most ? wanted : most;
  if (parts < 1) parts = 1;
  c.length = (rows + parts - 1) / parts;
  if (c.length < 1) c.length = 1;
  c.parts = rows == 0 ? 1 : (rows + c.length - 1) / c.length;
  return c;
}

}  // namespace tessera::cuda
