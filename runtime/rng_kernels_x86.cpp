// Philox on 4 and 8 blocks at a time. A 32-bit word of the counter sits in the lower half of a 64-bit lane,
// where the 32 x 32 -> 64 bit multiplication reads it; what gathers in the upper halves never matters.
#include <immintrin.h>

#include "runtime/rng_kernels.h"

#define TESSERA_AVX2 __attribute__((target("avx2")))
#define TESSERA_AVX512 __attribute__((target("avx512f")))

namespace tessera::detail {
namespace {

constexpr std::uint32_t kMul0 = 0xD2511F53U;
constexpr std::uint32_t kMul1 = 0xCD9E8D57U;

// The round keys are the same for all blocks.
struct RoundKeys {
  std::uint32_t k0[10];
  std::uint32_t k1[10];
  explicit RoundKeys(RngKey key) {
    auto a = static_cast<std::uint32_t>(key.seed);
    auto b = static_cast<std::uint32_t>(key.seed >> 32U);
    for (int round = 0; round < 10; ++round, a += 0x9E3779B9U, b += 0xBB67AE85U) {
      k0[round] = a;
      k1[round] = b;
    }
  }
};

TESSERA_AVX2 void words_avx2(RngKey key, std::uint64_t first_block, std::int64_t blocks,
                             std::uint32_t* words) {
  const RoundKeys keys(key);
  const __m256i m0 = _mm256_set1_epi64x(kMul0);
  const __m256i m1 = _mm256_set1_epi64x(kMul1);
  std::int64_t b = 0;
  for (; b + 4 <= blocks; b += 4) {
    __m256i c0 = _mm256_add_epi64(_mm256_set1_epi64x(static_cast<std::int64_t>(first_block) + b),
                                  _mm256_set_epi64x(3, 2, 1, 0));
    __m256i c1 = _mm256_srli_epi64(c0, 32);
    __m256i c2 = _mm256_set1_epi64x(static_cast<std::int64_t>(key.stream));
    __m256i c3 = _mm256_srli_epi64(c2, 32);
    for (int round = 0; round < 10; ++round) {
      const __m256i p0 = _mm256_mul_epu32(c0, m0);
      const __m256i p1 = _mm256_mul_epu32(c2, m1);
      const __m256i k0 = _mm256_set1_epi64x(keys.k0[round]);
      const __m256i k1 = _mm256_set1_epi64x(keys.k1[round]);
      c0 = _mm256_xor_si256(_mm256_srli_epi64(p1, 32), _mm256_xor_si256(c1, k0));
      c2 = _mm256_xor_si256(_mm256_srli_epi64(p0, 32), _mm256_xor_si256(c3, k1));
      c1 = p1;
      c3 = p0;
    }
    // Words 0 and 1 of a block into one lane, words 2 and 3 into another, then the lanes into block order.
    const __m256i lo = _mm256_blend_epi32(c0, _mm256_slli_epi64(c1, 32), 0xAA);
    const __m256i hi = _mm256_blend_epi32(c2, _mm256_slli_epi64(c3, 32), 0xAA);
    const __m256i even = _mm256_unpacklo_epi64(lo, hi);
    const __m256i odd = _mm256_unpackhi_epi64(lo, hi);
    auto* out = reinterpret_cast<__m256i*>(words + 4 * b);
    _mm256_storeu_si256(out, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256(out + 1, _mm256_permute2x128_si256(even, odd, 0x31));
  }
  for (; b < blocks; ++b) philox(key, first_block + static_cast<std::uint64_t>(b), words + 4 * b);
}

TESSERA_AVX512 void words_avx512(RngKey key, std::uint64_t first_block, std::int64_t blocks,
                                 std::uint32_t* words) {
  const RoundKeys keys(key);
  const __m512i m0 = _mm512_set1_epi64(kMul0);
  const __m512i m1 = _mm512_set1_epi64(kMul1);
  const __m512i first_half = _mm512_set_epi64(11, 3, 10, 2, 9, 1, 8, 0);
  const __m512i second_half = _mm512_set_epi64(15, 7, 14, 6, 13, 5, 12, 4);
  std::int64_t b = 0;
  for (; b + 8 <= blocks; b += 8) {
    __m512i c0 = _mm512_add_epi64(_mm512_set1_epi64(static_cast<std::int64_t>(first_block) + b),
                                  _mm512_set_epi64(7, 6, 5, 4, 3, 2, 1, 0));
    __m512i c1 = _mm512_srli_epi64(c0, 32);
    __m512i c2 = _mm512_set1_epi64(static_cast<std::int64_t>(key.stream));
    __m512i c3 = _mm512_srli_epi64(c2, 32);
    for (int round = 0; round < 10; ++round) {
      const __m512i p0 = _mm512_mul_epu32(c0, m0);
      const __m512i p1 = _mm512_mul_epu32(c2, m1);
      const __m512i k0 = _mm512_set1_epi64(keys.k0[round]);
      const __m512i k1 = _mm512_set1_epi64(keys.k1[round]);
      c0 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p1, 32), c1, k0, 0x96);  // xor of three
      c2 = _mm512_ternarylogic_epi64(_mm512_srli_epi64(p0, 32), c3, k1, 0x96);
      c1 = p1;
      c3 = p0;
    }
    const __m512i lo = _mm512_mask_blend_epi32(0xAAAA, c0, _mm512_slli_epi64(c1, 32));
    const __m512i hi = _mm512_mask_blend_epi32(0xAAAA, c2, _mm512_slli_epi64(c3, 32));
    _mm512_storeu_si512(words + 4 * b, _mm512_permutex2var_epi64(lo, first_half, hi));
    _mm512_storeu_si512(words + 4 * b + 16, _mm512_permutex2var_epi64(lo, second_half, hi));
  }
  for (; b < blocks; ++b) philox(key, first_block + static_cast<std::uint64_t>(b), words + 4 * b);
}

TESSERA_AVX2 void drop_avx2(float* out, const float* in, const std::uint32_t* words, std::int64_t n,
                            std::uint32_t limit, float factor) {
  const __m256i least = _mm256_set1_epi32(static_cast<int>(limit));
  const __m256 scale = _mm256_set1_ps(factor);
  std::int64_t i = 0;
  for (; i + 8 <= n; i += 8) {
    const __m256i w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(words + i));
    const __m256i keep = _mm256_cmpeq_epi32(_mm256_max_epu32(w, least), w);
    const __m256 value = _mm256_mul_ps(_mm256_loadu_ps(in + i), scale);
    _mm256_storeu_ps(out + i, _mm256_and_ps(value, _mm256_castsi256_ps(keep)));
  }
  for (; i < n; ++i) out[i] = words[i] >= limit ? in[i] * factor : 0.0F;
}

}  // namespace

const std::vector<RngKernels>& machine_rng_kernels() {
  static const std::vector<RngKernels> kernels = [] {
    __builtin_cpu_init();
    std::vector<RngKernels> list{baseline_rng_kernels()};
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
      list.push_back({"avx2", &words_avx2, &drop_avx2, &isa_avx2::normals});
      if (__builtin_cpu_supports("avx512f"))
        list.push_back({"avx512", &words_avx512, &drop_avx2, &isa_avx512::normals});
    }
    return list;
  }();
  return kernels;
}

}  // namespace tessera::detail
