#include <immintrin.h>

#include "bench/fma_chains.h"
#include "ops/cpu/isa.h"

namespace tessera::bench {
namespace {

// Four cycles of latency on two ports need eight chains; twelve leave room.
constexpr int kChains = 12;

__attribute__((target("avx512f"))) double chains_avx512(std::int64_t rounds) {
  __m512 chain[kChains];
  for (auto& c : chain) c = _mm512_set1_ps(1.0F);
  const __m512 a = _mm512_set1_ps(0.999F);
  const __m512 b = _mm512_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (auto& c : chain) c = _mm512_fmadd_ps(c, a, b);
  }
  for (auto& c : chain) asm volatile("" : : "v"(c));
  return 2.0 * 16 * kChains * static_cast<double>(rounds);
}

__attribute__((target("avx2,fma"))) double chains_avx2(std::int64_t rounds) {
  __m256 chain[kChains];
  for (auto& c : chain) c = _mm256_set1_ps(1.0F);
  const __m256 a = _mm256_set1_ps(0.999F);
  const __m256 b = _mm256_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (auto& c : chain) c = _mm256_fmadd_ps(c, a, b);
  }
  for (auto& c : chain) asm volatile("" : : "x"(c));
  return 2.0 * 8 * kChains * static_cast<double>(rounds);
}

// SSE2 has no fused form: a multiplication and an addition.
double chains_sse(std::int64_t rounds) {
  __m128 chain[kChains];
  for (auto& c : chain) c = _mm_set1_ps(1.0F);
  const __m128 a = _mm_set1_ps(0.999F);
  const __m128 b = _mm_set1_ps(0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
#pragma GCC unroll 12
    for (auto& c : chain) c = _mm_add_ps(_mm_mul_ps(c, a), b);
  }
  for (auto& c : chain) asm volatile("" : : "x"(c));
  return 2.0 * 4 * kChains * static_cast<double>(rounds);
}

}  // namespace

double run_fma_chains(std::int64_t rounds) {
  switch (cpu::active_isa()) {
    case cpu::Isa::Avx512:
      return chains_avx512(rounds);
    case cpu::Isa::Avx2:
      return chains_avx2(rounds);
    default:
      return chains_sse(rounds);
  }
}

}  // namespace tessera::bench
