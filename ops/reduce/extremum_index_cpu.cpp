#include <array>
#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/reduce/extremum_index.h"
#include "ops/reduce/extremum_key.h"

namespace tessera::cpu {
namespace {

using i64 = std::int64_t;
constexpr i64 kStrip = 256;  // columns whose candidates stay in the first-level cache

// The only column of row a: its candidate stays in a register.
template <class T>
void only_column(const ExtremumIndexArgs& args, i64 a) {
  const i64 n = args.x.size(1);
  const i64 offset = args.offsets.empty() ? 0 : args.offsets[static_cast<std::size_t>(a)];
  const T* row = args.x.data<T>() + a * n;
  ExtremumCandidate best{std::numeric_limits<ExtremumKey<T>>::min(), args.none};
  for (i64 i = 0; i < n; ++i)
    best.meet(extremum_key(row[i], args.largest), args.positions[static_cast<std::size_t>(i)] + offset);
  args.key.data<i64>()[a] = best.key;
  args.index.data<i64>()[a] = best.index;
}

// Columns [first, last) of row a.
template <class T>
void strip(const ExtremumIndexArgs& args, i64 a, i64 first, i64 last) {
  const i64 n = args.x.size(1);
  const i64 columns = args.x.size(2);
  const i64 offset = args.offsets.empty() ? 0 : args.offsets[static_cast<std::size_t>(a)];
  std::array<ExtremumCandidate, kStrip> strip_best;
  strip_best.fill({std::numeric_limits<ExtremumKey<T>>::min(), args.none});
  ExtremumCandidate* best = strip_best.data();
  for (i64 i = 0; i < n; ++i) {
    const T* row = args.x.data<T>() + (a * n + i) * columns;
    const i64 at = args.positions[static_cast<std::size_t>(i)] + offset;
    for (i64 b = first; b < last; ++b) best[b - first].meet(extremum_key(row[b], args.largest), at);
  }
  for (i64 b = first; b < last; ++b) {
    args.key.data<i64>()[a * columns + b] = best[b - first].key;
    args.index.data<i64>()[a * columns + b] = best[b - first].index;
  }
}

}  // namespace

void extremum_index(const ExtremumIndexArgs& args) {
  const i64 columns = args.x.size(2);
  const i64 strips = ceil_div(columns, kStrip);
  const int threads = threads_for(static_cast<double>(args.x.numel()));
  dispatch(args.x.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if (columns == 1) return parallel_for(args.x.size(0), threads, [&](i64 a) { only_column<T>(args, a); });
    parallel_for(args.x.size(0) * strips, threads, [&](i64 job) {
      const i64 first = job % strips * kStrip;
      strip<T>(args, job / strips, first, std::min(columns, first + kStrip));
    });
  });
}

void merge_extrema(const MergeExtremaArgs& args) {
  const i64 rows = args.key.numel();
  for (i64 r = 0; r < rows; ++r) {
    ExtremumCandidate best{args.keys.data<i64>()[r], args.indices.data<i64>()[r]};
    for (i64 p = 1; p < args.keys.size(0); ++p)
      best.meet(args.keys.data<i64>()[p * rows + r], args.indices.data<i64>()[p * rows + r]);
    args.key.data<i64>()[r] = best.key;
    args.index.data<i64>()[r] = best.index;
  }
}

}  // namespace tessera::cpu
