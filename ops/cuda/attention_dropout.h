// Which weights of a tile stay.
#pragma once
#include "ops/cuda/attention_tile.h"
#include "runtime/cuda/philox_words.h"

namespace tessera::cuda {

// Whether the weight of this row and key does; both are numbers in their tile.
TS_DEVICE bool kept(const AttentionDropElements& d, const TileAt& at, std::int64_t row, std::int64_t key) {
  const std::int64_t head = position(d.batch, at.batch) * d.all_heads + position(d.heads, at.head);
  const std::int64_t line = head * d.all_rows + position(d.rows, at.row + row);
  const std::int64_t index = d.index_offset + line * d.all_keys + position(d.keys, at.key + key);
  return word(key_of_launch(d.key), index, 0) >= d.limit;
}
// Of a thread's `n` rows and `n` keys, the first ones given, drawn before a tile's sums are made, while
// registers are free: bit i * n + j for the i-th row and the j-th key.
template <int n>
TS_DEVICE std::uint32_t kept_of_thread(const AttentionDropElements& d, const TileAt& at, int row, int key) {
  static_assert(n * n <= 32);
  std::uint32_t bits = 0;
  for (int e = 0; e < n * n; ++e) {
    const int i = row + e / n * kSquare;
    const int j = key + e % n * kSquare;
    if (i < at.rows && j < at.keys && kept(d, at, i, j)) bits |= std::uint32_t{1} << e;
  }
  return bits;
}
template <class T>
TS_DEVICE T dropped(const AttentionDropElements& d, bool keep, T value) {
  return keep ? value * static_cast<T>(d.factor) : T(0);
}

}  // namespace tessera::cuda
