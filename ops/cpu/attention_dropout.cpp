#include "ops/cpu/attention_dropout.h"

#include <limits>

#include "runtime/philox.h"
#include "runtime/rng_kernels.h"

namespace tessera::cpu {

std::uint32_t AttentionDropout::limit() const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(tessera::detail::drop_threshold(p), std::numeric_limits<std::uint32_t>::max()));
}

double AttentionDropout::factor() const {
  const bool nothing = tessera::detail::drop_threshold(p) > std::numeric_limits<std::uint32_t>::max();
  return nothing ? 0.0 : 1.0 / (1.0 - p);
}

void WeightWords::draw(std::uint32_t* words, const WeightBlock& b) const {
  // Consecutive positions have consecutive words, four to a block of the generator.
  struct Run {
    std::int64_t at, position, size;
  };
  Run runs[kAttentionKeys];
  std::int64_t count = 0;
  for (std::int64_t j = 0; j < b.keys; ++j) {
    const std::int64_t here = position(3, b.k0 + j);
    const bool goes_on = count > 0 && runs[count - 1].position + runs[count - 1].size == here;
    if (!goes_on) runs[count++] = {j, here, 0};
    ++runs[count - 1].size;
  }
  constexpr std::int64_t kEach = tessera::detail::kWordsPerBlock;
  std::uint32_t drawn[kAttentionKeys + 2 * kEach];
  const std::int64_t head = position(0, b.n) * d_.sizes[1] + position(1, b.h);
  for (std::int64_t i = 0; i < b.rows; ++i) {
    const std::int64_t row = head * d_.sizes[2] + position(2, b.q0 + i);
    for (std::int64_t r = 0; r < count; ++r) {
      const std::int64_t index = d_.index_offset + row * d_.sizes[3] + runs[r].position;
      const std::int64_t first = index / kEach;
      const std::int64_t blocks = (index + runs[r].size - 1) / kEach - first + 1;
      tessera::detail::rng_kernels().words(d_.random, static_cast<std::uint64_t>(first), blocks, drawn);
      std::copy_n(drawn + (index - first * kEach), runs[r].size, words + i * kAttentionKeys + runs[r].at);
    }
  }
}

}  // namespace tessera::cpu
