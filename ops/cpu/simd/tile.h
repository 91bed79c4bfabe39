// The innermost matrix product: a tile of c in registers, c (+)= a b over k steps.
#pragma once
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

using i64 = std::int64_t;

constexpr int kRows = 6;
constexpr int kVectors = kVectorBytes == 64 ? 4 : 2;
template <class T>
constexpr i64 kPanel = kVectors* kWidth<T>;

// Element (i, p) of a at i * a_row + p * a_step; row p of b at p * b_step, contiguous.
template <class T>
struct TileOperands {
  T* c;
  i64 c_row;
  const T* a;
  i64 a_row, a_step;
  const T* b;
  i64 b_step;
  i64 k;
};

template <class T, int rows, int vectors, bool add>
inline void tile_fixed(const TileOperands<T>& t) {
  using V = Vector<T>;
  V acc[rows][vectors];
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) acc[i][j] = add ? load(t.c + i * t.c_row + j * kWidth<T>) : V{};
  const T* a = t.a;
  const T* b = t.b;
  const i64 a_row = t.a_row;
  for (i64 p = t.k; p > 0; --p) {
    V bv[vectors];
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) bv[j] = load(b + j * kWidth<T>);
#pragma GCC unroll 8
    for (int i = 0; i < rows; ++i) {
      const T s = a[i * a_row];
#pragma GCC unroll 4
      for (int j = 0; j < vectors; ++j) acc[i][j] += bv[j] * s;
    }
    a += t.a_step;
    b += t.b_step;
  }
#pragma GCC unroll 8
  for (int i = 0; i < rows; ++i)
#pragma GCC unroll 4
    for (int j = 0; j < vectors; ++j) store(t.c + i * t.c_row + j * kWidth<T>, acc[i][j]);
}

template <class T, int rows, bool add>
inline void tile_rows(const TileOperands<T>& t, int vectors) {
  if (vectors == kVectors) return tile_fixed<T, rows, kVectors, add>(t);
  if constexpr (kVectors == 4) {
    if (vectors == 3) return tile_fixed<T, rows, 3, add>(t);
    if (vectors == 2) return tile_fixed<T, rows, 2, add>(t);
  }
  tile_fixed<T, rows, 1, add>(t);
}

// c of m rows and `vectors` vectors of columns; any m, any number of vectors.
template <class T, bool add>
void multiply_tiles(TileOperands<T> t, i64 m, i64 vectors) {
  for (i64 v = 0; v < vectors; v += kVectors) {
    const int width = static_cast<int>(vectors - v < kVectors ? vectors - v : kVectors);
    TileOperands<T> s = t;
    s.c += v * kWidth<T>;
    s.b += v * kWidth<T>;
    i64 i = 0;
    for (; i + kRows <= m; i += kRows) {
      tile_rows<T, kRows, add>(s, width);
      s.c += kRows * s.c_row;
      s.a += kRows * s.a_row;
    }
    switch (m - i) {
      case 5:
        tile_rows<T, 5, add>(s, width);
        break;
      case 4:
        tile_rows<T, 4, add>(s, width);
        break;
      case 3:
        tile_rows<T, 3, add>(s, width);
        break;
      case 2:
        tile_rows<T, 2, add>(s, width);
        break;
      case 1:
        tile_rows<T, 1, add>(s, width);
        break;
      default:
        break;
    }
  }
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
