#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "runtime/stream_copy.h"

namespace tessera {
namespace {

constexpr std::int64_t kLine = 64;

__attribute__((target("avx"))) void lines_avx(char* to, const char* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += kLine) {
    const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i));
    const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + i + 32));
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i), a);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + i + 32), b);
  }
}

void lines_sse2(char* to, const char* from, std::int64_t bytes) {
  for (std::int64_t i = 0; i < bytes; i += kLine) {
    for (std::int64_t j = i; j < i + kLine; j += 16)
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + j),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + j)));
  }
}

}  // namespace

void stream_copy(char* to, const char* from, std::int64_t bytes) {
  static const bool avx = __builtin_cpu_supports("avx") != 0;
  // Lines that are not written whole are left to ordinary stores.
  const auto past_line = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(to) % kLine);
  const std::int64_t head = std::min(bytes, past_line == 0 ? 0 : kLine - past_line);
  const std::int64_t whole = (bytes - head) / kLine * kLine;
  const std::int64_t tail = bytes - head - whole;
  if (head > 0) std::memcpy(to, from, static_cast<std::size_t>(head));
  (avx ? lines_avx : lines_sse2)(to + head, from + head, whole);
  if (tail > 0) std::memcpy(to + head + whole, from + head + whole, static_cast<std::size_t>(tail));
}

void stream_fence() { _mm_sfence(); }
bool has_stream_copy() { return true; }

}  // namespace tessera
