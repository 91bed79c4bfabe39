// The random words of attention's weights, block by block.
#pragma once
#include "ops/cpu/attention_common.h"

namespace tessera::cpu {

// A block of weights: batch n, head h, rows from q0 and keys from k0 on.
struct WeightBlock {
  std::int64_t n, h;
  std::int64_t q0, rows;
  std::int64_t k0, keys;
};

class WeightWords {
 public:
  explicit WeightWords(const AttentionDropout& dropout) : d_(dropout) {}
  bool any() const { return d_.any(); }
  // words: [rows][kAttentionKeys].
  void draw(std::uint32_t* words, const WeightBlock& block) const;
  template <class T>
  AttentionBlockDropout<T> drawn(std::uint32_t* words, const WeightBlock& block) const {
    if (!any()) return {};
    draw(words, block);
    return {words, d_.limit(), static_cast<T>(d_.factor())};
  }
  // Memory for the words of `rows` rows.
  std::uint32_t* take(Workspace& space, std::int64_t rows) const {
    return any() ? space.take<std::uint32_t>(rows * kAttentionKeys) : nullptr;
  }

 private:
  std::int64_t position(int dim, std::int64_t i) const {
    return d_.positions[dim] != nullptr ? d_.positions[dim][i] : i;
  }
  const AttentionDropout& d_;
};

}  // namespace tessera::cpu
