#include "examples/relief/pictures.h"

#include <fmt/format.h>

#include <cmath>

#include "examples/maps/files.h"
#include "ops/ops.h"
#include "runtime/error.h"

namespace tessera::relief {
namespace {

// Indices of a region's columns, from west to east: those whose blocks are in it, as cells are held out.
std::vector<std::int64_t> columns_of(const LonLatBox& region, const ReliefData& data) {
  std::vector<std::int64_t> before;  // those that come after the seam
  std::vector<std::int64_t> cols;
  const double middle = (region.south + region.north) / 2.0;
  const auto& longitudes = data.block_longitudes();
  for (std::size_t c = 0; c < longitudes.size(); ++c) {
    if (!region.contains(longitudes[c], middle)) continue;
    const bool follows = !cols.empty() && cols.back() + 1 != static_cast<std::int64_t>(c);
    if (follows) std::swap(before, cols);
    cols.push_back(static_cast<std::int64_t>(c));
  }
  cols.insert(cols.end(), before.begin(), before.end());
  return cols;
}

Interval rows_of(const LonLatBox& region, const ReliefData& data) {
  Interval rows{0, 0};
  const auto& latitudes = data.block_latitudes();
  for (std::size_t r = 0; r < latitudes.size(); ++r) {
    if (latitudes[r] < region.south || latitudes[r] >= region.north) continue;
    const auto row = static_cast<std::int64_t>(r);
    rows = {rows.empty() ? row : rows.lo, row + 1};
  }
  return rows;
}

}  // namespace

void check_region(const ReliefData& data, const LonLatBox& region) {
  TS_CHECK(!columns_of(region, data).empty() && !rows_of(region, data).empty(), kProgram,
           "the region to draw, {},{},{},{}, has no cells: the middle of no coarse cell is in it",
           region.west, region.east, region.south, region.north);
}

void write_region(const std::string& path, bool write, const ReliefData& data, const LonLatBox& region,
                  const Tensor& model) {
  const NoGrad guard;
  const std::vector<std::int64_t> cols = columns_of(region, data);
  const Interval rows = rows_of(region, data);
  const auto n = static_cast<std::int64_t>(cols.size());
  // Columns west of the seam, and those east of it.
  const std::int64_t first = std::min(n, data.cut().shape.cols - cols.front());
  std::vector<std::vector<double>> maps;
  for (const Tensor& map : {data.blocks(), data.base(), model, data.truth()}) {
    const Tensor strip = slice(map, maps::kRowDim, rows.lo, rows.hi);
    const Tensor west = slice(strip, maps::kColDim, cols.front(), cols.front() + first);
    maps.push_back((n > first ? cat({west, slice(strip, maps::kColDim, 0, n - first)}, maps::kColDim) : west)
                       .to_vector());
  }
  if (!write) return;
  std::string text = "# longitude latitude coarse bicubic model true\n";
  for (std::int64_t r = 0; r < rows.length(); ++r) {
    for (std::int64_t c = 0; c < n; ++c) {
      const auto at = static_cast<std::size_t>(r * n + c);
      // Degrees rise from west to east across the seam; the block is in the region, a cell of it may lie
      // west.
      const auto col = static_cast<std::size_t>(cols[static_cast<std::size_t>(c)]);
      const double turns = std::floor((data.block_longitudes()[col] - region.west) / 360.0);
      const double longitude = data.longitudes()[col] - 360.0 * turns;
      text += fmt::format("{:.4f} {:.4f} {:.1f} {:.1f} {:.1f} {:.1f}\n", longitude,
                          data.latitudes()[static_cast<std::size_t>(rows.lo + r)], maps[0][at], maps[1][at],
                          maps[2][at], maps[3][at]);
    }
    text += "\n";
  }
  maps::write_text(kProgram, path, text);
}

}  // namespace tessera::relief
