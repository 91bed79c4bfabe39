// Transposes of small square blocks in 16-byte registers, for copies that turn the order of dims around.
#pragma once
#include <cstdint>
#include <cstring>
#include <utility>

namespace tessera::detail {

// N elements of T fill one register; N x N elements are transposed in log2 N rounds, each of which
// interleaves row i with row i + N/2.
template <class T>
struct RegisterTile {
  static constexpr std::size_t kSide = 16 / sizeof(T);
  typedef T Vector
      __attribute__((vector_size(16)));  // NOLINT: the alias form drops the attribute of a dependent type

  template <std::size_t... I>
  static Vector low_halves(Vector a, Vector b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, (I % 2 == 0 ? I / 2 : kSide + I / 2)...);
  }
  template <std::size_t... I>
  static Vector high_halves(Vector a, Vector b, std::index_sequence<I...>) {
    return __builtin_shufflevector(a, b, (kSide / 2 + (I % 2 == 0 ? I / 2 : kSide + I / 2))...);
  }

  // to[i * to_pitch + j] = from[j * from_pitch + i] for i, j < kSide.
  static void transpose(T* to, std::int64_t to_pitch, const T* from, std::int64_t from_pitch) {
    constexpr auto kEach = std::make_index_sequence<kSide>{};
    Vector rows[kSide];
    Vector next[kSide];
    for (std::size_t j = 0; j < kSide; ++j)
      std::memcpy(&rows[j], from + static_cast<std::int64_t>(j) * from_pitch, sizeof(Vector));
    for (std::size_t round = 1; round < kSide; round *= 2) {
      for (std::size_t i = 0; i < kSide / 2; ++i) {
        next[2 * i] = low_halves(rows[i], rows[i + kSide / 2], kEach);
        next[2 * i + 1] = high_halves(rows[i], rows[i + kSide / 2], kEach);
      }
      std::memcpy(rows, next, sizeof(rows));
    }
    for (std::size_t i = 0; i < kSide; ++i)
      std::memcpy(to + static_cast<std::int64_t>(i) * to_pitch, &rows[i], sizeof(Vector));
  }
};

}  // namespace tessera::detail
