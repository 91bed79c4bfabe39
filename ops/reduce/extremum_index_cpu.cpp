#include <array>
#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/reduce/extremum_index.h"

namespace tessera::cpu {
namespace {

using i64 = std::int64_t;
constexpr i64 kStrip = 256;  // columns whose candidates stay in the first-level cache

// A signed integer as wide as the type's values, at least four bytes.
template <class T>
using KeyOf = std::conditional_t<sizeof(T) == 8, i64, std::int32_t>;

// Equal values, and the two zeros, have equal keys.
template <class T>
i64 key_of(T value, bool largest) {
  using Key = KeyOf<T>;
  constexpr Key kHighest = std::numeric_limits<Key>::max();
  Key key = 0;
  if constexpr (is_floating(dtype_of<T>())) {
    using F = std::conditional_t<sizeof(T) == 8, double, float>;
    const F v = static_cast<F>(value) + F(0);
    if (v != v) return kHighest;
    const auto bits = std::bit_cast<Key>(v);
    key = bits < 0 ? bits ^ kHighest : bits;
  } else {
    key = static_cast<Key>(value);
  }
  return largest ? key : ~key;
}

struct Candidate {
  i64 key;
  i64 index;
  void meet(i64 other_key, i64 other_index) {
    const bool better = other_key > key || (other_key == key && other_index < index);
    key = better ? other_key : key;
    index = better ? other_index : index;
  }
};

// Columns [first, last) of row a.
template <class T>
void strip(const ExtremumIndexArgs& args, i64 a, i64 first, i64 last) {
  const i64 n = args.x.size(1);
  const i64 columns = args.x.size(2);
  const i64 offset = args.offsets.empty() ? 0 : args.offsets[static_cast<std::size_t>(a)];
  std::array<Candidate, kStrip> strip_best;
  strip_best.fill({std::numeric_limits<KeyOf<T>>::min(), args.none});
  Candidate* best = strip_best.data();
  for (i64 i = 0; i < n; ++i) {
    const T* row = args.x.data<T>() + (a * n + i) * columns;
    const i64 at = args.positions[static_cast<std::size_t>(i)] + offset;
    for (i64 b = first; b < last; ++b) best[b - first].meet(key_of(row[b], args.largest), at);
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
    parallel_for(args.x.size(0) * strips, threads, [&](i64 job) {
      const i64 first = job % strips * kStrip;
      strip<T>(args, job / strips, first, std::min(columns, first + kStrip));
    });
  });
}

void merge_extrema(const MergeExtremaArgs& args) {
  const i64 rows = args.key.numel();
  for (i64 r = 0; r < rows; ++r) {
    Candidate best{args.keys.data<i64>()[r], args.indices.data<i64>()[r]};
    for (i64 p = 1; p < args.keys.size(0); ++p)
      best.meet(args.keys.data<i64>()[p * rows + r], args.indices.data<i64>()[p * rows + r]);
    args.key.data<i64>()[r] = best.key;
    args.index.data<i64>()[r] = best.index;
  }
}

}  // namespace tessera::cpu
