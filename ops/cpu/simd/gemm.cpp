// Matrix products of our own: f64, which oneDNN lacks, and what is too small for a library call.
//
// The usual scheme (Goto and van de Geijn 2008): a block of a and a panel of b are packed into the order in
// which the innermost kernel reads them; that kernel keeps a tile of c in registers over all of k.
#include "ops/cpu/simd/tables.h"
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

// A tile of c: as many accumulators as the registers hold beside a row of b and one element of a.
constexpr int kTileRows = kVectorBytes == 64 ? 8 : 4;
constexpr int kTileVectors = kVectorBytes >= 32 ? 3 : 2;
template <class T>
constexpr int kTileCols = kTileVectors* kWidth<T>;

constexpr i64 kDepth = 256;     // of k at a time
constexpr i64 kBlockRows = 96;  // of a at a time: 192 KiB in f64
constexpr i64 kPanelCols = 960;

inline i64 round_up(i64 n, i64 step) { return (n + step - 1) / step * step; }
inline i64 smaller(i64 a, i64 b) { return a < b ? a : b; }

// out[block][k][rows]: `rows` elements apart by `across`, k by `along`; missing ones are 0.
template <class T, int rows>
void pack(T* out, const T* x, i64 n, i64 k, i64 across, i64 along) {
  for (i64 r = 0; r < n; r += rows) {
    const i64 have = smaller(rows, n - r);
    for (i64 p = 0; p < k; ++p, out += rows) {
      const T* from = x + r * across + p * along;
      if (have == rows) {
        for (int i = 0; i < rows; ++i) out[i] = from[i * across];
      } else {
        for (int i = 0; i < rows; ++i) out[i] = i < have ? from[i * across] : T(0);
      }
    }
  }
}

template <class T>
void tile(T* out, i64 row, i64 col, const T* a, const T* b, i64 k, i64 m, i64 n) {
  using V = Vector<T>;
  V acc[kTileRows][kTileVectors] = {};
  for (i64 p = 0; p < k; ++p) {
    V bv[kTileVectors];
#pragma GCC unroll 4
    for (int j = 0; j < kTileVectors; ++j) bv[j] = load(b + j * kWidth<T>);
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) acc[i][j] += bv[j] * a[i];
    a += kTileRows;
    b += kTileCols<T>;
  }
  if (m == kTileRows && n == kTileCols<T> && col == 1) {
#pragma GCC unroll 8
    for (int i = 0; i < kTileRows; ++i)
#pragma GCC unroll 4
      for (int j = 0; j < kTileVectors; ++j) {
        T* to = out + i * row + j * kWidth<T>;
        store(to, load(to) + acc[i][j]);
      }
    return;
  }
  T rest[kTileRows][kTileCols<T>];
  for (int i = 0; i < kTileRows; ++i)
    for (int j = 0; j < kTileVectors; ++j) store(&rest[i][j * kWidth<T>], acc[i][j]);
  for (i64 i = 0; i < m; ++i)
    for (i64 j = 0; j < n; ++j) out[i * row + j * col] += rest[i][j];
}

template <class T>
i64 workspace() {
  return kBlockRows * kDepth + round_up(kPanelCols, kTileCols<T>) * kDepth;
}

template <class T>
void packed(const GemmBlock<T>& g, T* space) {
  T* const pa = space;
  T* const pb = space + kBlockRows * kDepth;
  for (i64 k0 = 0; k0 < g.k; k0 += kDepth) {
    const i64 k = smaller(kDepth, g.k - k0);
    for (i64 n0 = 0; n0 < g.n; n0 += kPanelCols) {
      const i64 n = smaller(kPanelCols, g.n - n0);
      pack<T, kTileCols<T>>(pb, g.b + k0 * g.b_row + n0 * g.b_col, n, k, g.b_col, g.b_row);
      for (i64 m0 = 0; m0 < g.m; m0 += kBlockRows) {
        const i64 m = smaller(kBlockRows, g.m - m0);
        pack<T, kTileRows>(pa, g.a + m0 * g.a_row + k0 * g.a_col, m, k, g.a_row, g.a_col);
        for (i64 j = 0; j < n; j += kTileCols<T>)
          for (i64 i = 0; i < m; i += kTileRows)
            tile<T>(g.c + (m0 + i) * g.c_row + (n0 + j) * g.c_col, g.c_row, g.c_col, pa + i * k, pb + j * k,
                    k, smaller(kTileRows, m - i), smaller(kTileCols<T>, n - j));
      }
    }
  }
}

// b's rows lie in memory: rows of c are combinations of them.
template <class T>
void small_by_rows(const GemmBlock<T>& g) {
  constexpr int kColumns = 4 * kWidth<T>;
  for (i64 i = 0; i < g.m; ++i) {
    T* c = g.c + i * g.c_row;
    const T* a = g.a + i * g.a_row;
    i64 j = 0;
    for (; j + kColumns <= g.n; j += kColumns) {
      Vector<T> acc[4];
      for (int v = 0; v < 4; ++v) acc[v] = load(c + j + v * kWidth<T>);
      for (i64 p = 0; p < g.k; ++p)
        for (int v = 0; v < 4; ++v) acc[v] += load(g.b + p * g.b_row + j + v * kWidth<T>) * a[p * g.a_col];
      for (int v = 0; v < 4; ++v) store(c + j + v * kWidth<T>, acc[v]);
    }
    for (; j + kWidth<T> <= g.n; j += kWidth<T>) {
      Vector<T> acc = load(c + j);
      for (i64 p = 0; p < g.k; ++p) acc += load(g.b + p * g.b_row + j) * a[p * g.a_col];
      store(c + j, acc);
    }
    for (; j < g.n; ++j) {
      T acc = c[j];
      for (i64 p = 0; p < g.k; ++p) acc += a[p * g.a_col] * g.b[p * g.b_row + j];
      c[j] = acc;
    }
  }
}

// Both operands lie along k: elements of c are dot products.
template <class T>
void small_by_dots(const GemmBlock<T>& g) {
  for (i64 i = 0; i < g.m; ++i)
    for (i64 j = 0; j < g.n; ++j) {
      const T* a = g.a + i * g.a_row;
      const T* b = g.b + j * g.b_col;
      Vector<T> acc = {};
      i64 p = 0;
      for (; p + kWidth<T> <= g.k; p += kWidth<T>) acc += load(a + p) * load(b + p);
      T sum = sum_of<T>(acc);
      for (; p < g.k; ++p) sum += a[p] * b[p];
      g.c[i * g.c_row + j * g.c_col] += sum;
    }
}

template <class T>
void small(const GemmBlock<T>& g) {
  if (g.b_col == 1 && g.c_col == 1) return small_by_rows(g);
  if (g.a_col == 1 && g.b_row == 1) return small_by_dots(g);
  for (i64 i = 0; i < g.m; ++i)
    for (i64 j = 0; j < g.n; ++j) {
      T sum = T(0);
      for (i64 p = 0; p < g.k; ++p) sum += g.a[i * g.a_row + p * g.a_col] * g.b[p * g.b_row + j * g.b_col];
      g.c[i * g.c_row + j * g.c_col] += sum;
    }
}

}  // namespace

const GemmTable& gemm_table() {
  static constexpr GemmTable table{{&packed<float>, &workspace<float>, &small<float>},
                                   {&packed<double>, &workspace<double>, &small<double>}};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
