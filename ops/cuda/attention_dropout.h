// Which weights of a tile stay.
#pragma once
#include "ops/cuda/attention_mask.h"
#include "runtime/cuda/philox_words.h"

namespace tessera::cuda {

// Whether the weight of this row and key does; both are numbers in their tile.
TS_DEVICE bool kept(const AttentionDropElements& d, const TileAt& at, std::int64_t row, std::int64_t key) {
  const std::int64_t head = position(d.batch, at.batch) * d.all_heads + position(d.heads, at.head);
  const std::int64_t line = head * d.all_rows + position(d.rows, at.row + row);
  const std::int64_t index = d.index_offset + line * d.all_keys + position(d.keys, at.key + key);
  return word(key_of_launch(d.key), index, 0) >= d.limit;
}
template <class T>
TS_DEVICE T dropped(const AttentionDropElements& d, bool keep, T value) {
  return keep ? value * static_cast<T>(d.factor) : T(0);
}

}  // namespace tessera::cuda
