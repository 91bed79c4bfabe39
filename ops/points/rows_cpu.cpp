#include "ops/points/rows.h"

#include <algorithm>
#include <cstring>

#include "ops/cpu/parallel.h"

namespace tessera::cpu::points {
namespace {

constexpr std::int64_t kRowsPerPiece = 4096;

std::int64_t row_elements(const Array& table) {
  std::int64_t n = 1;
  for (int d = 1; d < table.dim(); ++d) n *= table.size(d);
  return n;
}

}  // namespace

void take_rows(const TakeRowsArgs& args) {
  const auto bytes = static_cast<std::size_t>(row_elements(args.table) * size_of(args.table.dtype()));
  const std::int64_t n = args.rows.numel();
  const auto* rows = args.rows.data<std::int64_t>();
  const auto* from = static_cast<const char*>(args.table.raw());
  auto* to = static_cast<char*>(args.out.raw());
  const double moved = static_cast<double>(n) * static_cast<double>(bytes);
  parallel_for(ceil_div(n, kRowsPerPiece), threads_for(moved), [&](std::int64_t piece) {
    const std::int64_t last = std::min(n, (piece + 1) * kRowsPerPiece);
    for (std::int64_t i = piece * kRowsPerPiece; i < last; ++i) {
      char* row = to + static_cast<std::size_t>(i) * bytes;
      if (rows[i] < 0) {
        std::memset(row, 0, bytes);
      } else {
        std::memcpy(row, from + static_cast<std::size_t>(rows[i]) * bytes, bytes);
      }
    }
  });
}

void add_rows(const AddRowsArgs& args) {
  const std::int64_t width = row_elements(args.table);
  const auto* rows = args.rows.data<std::int64_t>();
  dispatch(args.table.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double> || std::is_same_v<T, std::int64_t>) {
      T* table = args.table.data<T>();
      const T* values = args.values.data<T>();
      for (std::int64_t i = 0; i < args.rows.numel(); ++i) {
        if (rows[i] < 0) continue;
        T* row = table + rows[i] * width;
        for (std::int64_t e = 0; e < width; ++e) row[e] += values[i * width + e];
      }
    }
  });
}

}  // namespace tessera::cpu::points
