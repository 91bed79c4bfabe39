#include "ops/cpu/block_io.h"
#include "ops/cpu/matmul_problem.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kTile = 192;         // rows of c in a piece
constexpr std::int64_t kTileColumns = 960;  // columns of c in a piece
constexpr double kPackFlops = 1e5;          // below this, packing costs more than it gains

template <class T>
void start(const GemmBlock<T>& g, const T* bias, bool accumulate) {
  if (accumulate && bias == nullptr) return;
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t j = 0; j < g.n; ++j) {
      T& c = g.c[i * g.c_row + j * g.c_col];
      c = (accumulate ? c : T(0)) + (bias == nullptr ? T(0) : bias[j]);
    }
}

template <class T>
void multiply_integers(const GemmBlock<T>& g) {
  using U = std::make_unsigned_t<T>;  // wraps
  for (std::int64_t i = 0; i < g.m; ++i)
    for (std::int64_t p = 0; p < g.k; ++p) {
      const auto a = static_cast<U>(g.a[i * g.a_row + p * g.a_col]);
      for (std::int64_t j = 0; j < g.n; ++j) {
        T& c = g.c[i * g.c_row + j * g.c_col];
        c = static_cast<T>(static_cast<U>(c) + a * static_cast<U>(g.b[p * g.b_row + j * g.b_col]));
      }
    }
}

template <class T>
void multiply(const GemmBlock<T>& g) {
  if constexpr (std::is_integral_v<T>) {
    multiply_integers(g);
  } else {
    const GemmBlocks<T>& kernels = blocks_of<T>(gemm_table());
    const double flops = 2.0 * static_cast<double>(g.m) * static_cast<double>(g.n) * static_cast<double>(g.k);
    if (flops < kPackFlops || g.m < 4) return kernels.small(g);
    kernels.packed(g, Workspace::begin().take<T>(kernels.workspace()));
  }
}

// The whole product of one batch element.
template <class T>
GemmBlock<T> block_of(const MatmulProblem& p, const Offsets& at) {
  return {reinterpret_cast<T*>(p.c_data) + at[0],
          reinterpret_cast<const T*>(p.a_data) + at[1],
          reinterpret_cast<const T*>(p.b_data) + at[2],
          p.m,
          p.n,
          p.k,
          p.c.row,
          p.c.col,
          p.a.row,
          p.a.col,
          p.b.row,
          p.b.col};
}

template <class T>
void run(const MatmulProblem& p) {
  const std::int64_t row_tiles = ceil_div(p.m, kTile);
  const std::int64_t col_tiles = ceil_div(p.n, kTileColumns);
  const std::int64_t inner = p.batch.inner_size();
  const T* bias = static_cast<const T*>(p.bias);
  parallel_for(p.batch.numel * row_tiles * col_tiles, threads_for(p.flops()), [&](std::int64_t piece) {
    const std::int64_t m0 = piece % row_tiles * kTile;
    const std::int64_t n0 = piece / row_tiles % col_tiles * kTileColumns;
    const std::int64_t batch = piece / row_tiles / col_tiles;
    const detail::OuterCounter outer(p.batch, batch / inner);
    Offsets at = outer.offsets();
    for (int k = 0; k < 3; ++k) at[static_cast<std::size_t>(k)] += batch % inner * p.batch.inner_stride(k);
    GemmBlock<T> g = block_of<T>(p, at);
    g.c += m0 * g.c_row + n0 * g.c_col;
    g.a += m0 * g.a_row;
    g.b += n0 * g.b_col;
    g.m = std::min(kTile, p.m - m0);
    g.n = std::min(kTileColumns, p.n - n0);
    start(g, bias == nullptr ? nullptr : bias + n0, p.accumulate);
    multiply(g);
  });
}

}  // namespace

void matmul_own(const MatmulProblem& p) {
  switch (p.dtype) {
    case DType::F32:
      return run<float>(p);
    case DType::F64:
      return run<double>(p);
    case DType::I32:
      return run<std::int32_t>(p);
    default:
      return run<std::int64_t>(p);
  }
}

}  // namespace tessera::cpu
