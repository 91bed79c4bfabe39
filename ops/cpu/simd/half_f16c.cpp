// Blocks of f16 by the instructions of x86, eight numbers at a time.
#include <immintrin.h>

#include "ops/cpu/simd/half.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

constexpr std::int64_t kLanes = 8;

__m128i load_halves(const std::uint16_t* p) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p)); }
__m128i rounded(__m256 x) { return _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }

}  // namespace

void block_from_f16(float* out, const std::uint16_t* x, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) _mm256_storeu_ps(out + i, _mm256_cvtph_ps(load_halves(x + i)));
  for (; i < n; ++i) out[i] = from_f16(x[i]);
}
void block_to_f16(std::uint16_t* out, const float* x, std::int64_t n) {
  std::int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes)
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i), rounded(_mm256_loadu_ps(x + i)));
  for (; i < n; ++i) out[i] = to_f16(x[i]);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
