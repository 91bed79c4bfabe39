#include "runtime/rng.h"

#include "runtime/error.h"
#include "runtime/rng_kernels.h"
#include "runtime/rng_math.h"

namespace tessera {

namespace {

// Blocks do not depend on each other, so the compiler works on as many side by side as the registers hold;
// the words are put in element order by a second pass over a small buffer.
void words_baseline(RngKey key, std::uint64_t first_block, std::int64_t blocks, std::uint32_t* words) {
  constexpr int kGroup = 16;
  std::int64_t b = 0;
  for (; b + kGroup <= blocks; b += kGroup) {
    std::uint32_t w[detail::kWordsPerBlock][kGroup];
    for (int i = 0; i < kGroup; ++i) {
      const detail::PhiloxBlock out =
          detail::philox_block(key, first_block + static_cast<std::uint64_t>(b + i));
      w[0][i] = out.w0;
      w[1][i] = out.w1;
      w[2][i] = out.w2;
      w[3][i] = out.w3;
    }
    for (int i = 0; i < kGroup; ++i)
      for (int k = 0; k < detail::kWordsPerBlock; ++k) words[(b + i) * detail::kWordsPerBlock + k] = w[k][i];
  }
  for (; b < blocks; ++b)
    philox(key, first_block + static_cast<std::uint64_t>(b), words + b * detail::kWordsPerBlock);
}

void drop_baseline(float* out, const float* in, const std::uint32_t* words, std::int64_t n,
                   std::uint32_t limit, float factor) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = in[i] * factor;
    out[i] = words[i] >= limit ? value : 0.0F;
  }
}

void normals_baseline(const std::uint32_t* words, std::int64_t pairs, detail::NormalScale scale,
                      double* values) {
  for (std::int64_t i = 0; i < pairs; ++i) {
    const detail::NormalPair pair = detail::box_muller(words[2 * i], words[2 * i + 1]);
    values[2 * i] = std::fma(scale.deviation, pair.first, scale.mean);
    values[2 * i + 1] = std::fma(scale.deviation, pair.second, scale.mean);
  }
}

std::uint64_t block_of(std::int64_t index, std::uint64_t lane = 0) {
  return static_cast<std::uint64_t>(index) / detail::kWordsPerBlock | lane << detail::kLaneShift;
}

std::uint32_t word_of(RngKey key, std::int64_t index, std::uint64_t lane) {
  std::uint32_t w[4];
  philox(key, block_of(index, lane), w);
  return w[index % detail::kWordsPerBlock];
}

}  // namespace

const detail::RngKernels& detail::baseline_rng_kernels() {
  static const RngKernels kernels{"baseline", &words_baseline, &drop_baseline, &normals_baseline};
  return kernels;
}

void philox(RngKey key, std::uint64_t block, std::uint32_t out[4]) {
  const detail::PhiloxBlock b = detail::philox_block(key, block);
  out[0] = b.w0;
  out[1] = b.w1;
  out[2] = b.w2;
  out[3] = b.w3;
}

float uniform_f32(RngKey key, std::int64_t index) {
  return static_cast<float>(detail::unit_24(word_of(key, index, 0)));
}

double uniform_f64(RngKey key, std::int64_t index) {
  return detail::unit_53(word_of(key, index, 0), word_of(key, index, 1));
}

double normal(RngKey key, std::int64_t index) {
  std::uint32_t w[4];
  philox(key, block_of(index), w);
  const auto pair = static_cast<std::size_t>(index % detail::kWordsPerBlock / 2 * 2);
  const detail::NormalPair z = detail::box_muller(w[pair], w[pair + 1]);
  return index % 2 == 0 ? z.first : z.second;
}

bool bernoulli_keep(RngKey key, std::int64_t index, double p) {
  TS_CHECK(p >= 0 && p <= 1, "bernoulli_keep", "p is {}, allowed are 0 to 1", p);
  return word_of(key, index, 0) >= detail::drop_threshold(p);
}

}  // namespace tessera
