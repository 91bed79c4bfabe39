// What the passes of attention share: products of tiles by way of shared memory.
//
// 256 threads as a square of 16 by 16. Thread (y, x) has rows y, y + 16, ... of a tile of scores and its
// columns x, x + 16, ...; sums over the head's numbers are made one after another with fused steps, so that
// equal products have equal bits wherever they are made.
#pragma once
#include <type_traits>

#include "ops/cuda/attention_mask.h"
#include "ops/cuda/device_math.h"
#include "runtime/cuda/elements.h"

namespace tessera::cuda {

constexpr int kSquare = 16;
constexpr int kDepth = 32;          // numbers of each row in shared memory at once
constexpr int kPitch = kDepth + 4;  // fours stay aligned, rows begin in other banks
constexpr int kStrip = 16;          // rows of a second product's operand at once
template <class T>
constexpr int kEach = sizeof(T) == 4 ? 4 : 2;  // rows, and columns, of a tile that a thread has
template <class T>
constexpr int kTile = kSquare* kEach<T>;
template <class T>
constexpr int kWeightPitch = kTile<T> + 4;
template <class T>
constexpr int kOperandBytes = 2 * kTile<T>* kPitch* static_cast<int>(sizeof(T));
template <class T>
constexpr int kAttentionBytes = kOperandBytes<T> + kTile<T>* kWeightPitch<T>* static_cast<int>(sizeof(T));

template <class T>
struct alignas(16) Four {
  T x[4];
};
template <class T>
TS_DEVICE Four<T> four_at(const T* p) {
  return *reinterpret_cast<const Four<T>*>(p);
}

TS_DEVICE int thread_row(const Block& block) { return block.thread() / kSquare; }
TS_DEVICE int thread_col(const Block& block) { return block.thread() % kSquare; }
// The w-th of a thread's `W` columns of a result.
template <int W>
TS_DEVICE int result_col(const Block& block, int w) {
  constexpr int kRun = W < 4 ? W : 4;
  return w / kRun * kSquare * kRun + thread_col(block) * kRun + w % kRun;
}

// Rows of one head from `first` on, of which `rows` exist, each of `cols` numbers, which count `factor`
// times.
template <class S, class T>
struct TileRows {
  Ptr<const S> data;  // row `first`
  std::int64_t pitch = 0;
  int rows = 0;
  std::int64_t cols = 0;
  T factor = 1;
};

template <class S, class T>
TS_DEVICE TileRows<S, T> tile_rows(const HeadRows& h, std::int64_t offset, std::int64_t first,
                                   std::int64_t last) {
  const std::int64_t left = last - first;
  TileRows<S, T> t;
  t.data = Ptr<const S>(static_cast<const S*>(h.data)) + offset + first * h.row;
  t.pitch = h.row;
  t.rows = static_cast<int>(left < kTile<T> ? left : kTile<T>);
  return t;
}

// Where a block of numbers of a tile's rows goes in shared memory.
struct Chunk {
  int first_row = 0;
  int rows = 0;
  std::int64_t first_col = 0;
  int cols = 0;
  int pitch = 0;
};
// Zeros beyond the end of the rows and of their numbers.
template <class S, class T>
TS_DEVICE void load_chunk(const Block& block, T* to, const TileRows<S, T>& from, const Chunk& c) {
  for (int i = block.thread(); i < c.rows * c.cols; i += block.threads()) {
    const int row = i / c.cols;
    const int col = i % c.cols;
    const bool inside = c.first_row + row < from.rows && c.first_col + col < from.cols;
    T value = 0;
    if (inside)
      value =
          static_cast<T>(load(from.data[(c.first_row + row) * from.pitch + c.first_col + col])) * from.factor;
    to[row * c.pitch + col] = value;
  }
}

// sums[i][j] += row i of a times row j of b. All threads of the block; nobody reads `shared` before or after.
template <class S, class T>
TS_DEVICE void multiply_rows(const Block& block, T (&sums)[kEach<T>][kEach<T>], const TileRows<S, T>& a,
                             const TileRows<S, T>& b, T* shared) {
  constexpr int n = kEach<T>;
  const int y = thread_row(block);
  const int x = thread_col(block);
  T* const left = shared;
  T* const right = shared + kTile<T> * kPitch;
  for (std::int64_t at = 0; at < a.cols; at += kDepth) {
    const Chunk chunk{0, kTile<T>, at, kDepth, kPitch};
    load_chunk(block, left, a, chunk);
    load_chunk(block, right, b, chunk);
    block.sync();
    const int depth = a.cols - at < kDepth ? static_cast<int>(a.cols - at) : kDepth;
    if (y < a.rows && x < b.rows) {
      for (int c = 0; c < depth; c += 4) {
        Four<T> l[n];
        Four<T> r[n];
        for (int i = 0; i < n; ++i) l[i] = four_at(left + (y + i * kSquare) * kPitch + c);
        for (int j = 0; j < n; ++j) r[j] = four_at(right + (x + j * kSquare) * kPitch + c);
        for (int u = 0; u < 4; ++u)
          for (int i = 0; i < n; ++i)
            for (int j = 0; j < n; ++j) sums[i][j] = std::fma(l[i].x[u], r[j].x[u], sums[i][j]);
      }
    }
    block.sync();
  }
}

// The weights of a tile into shared memory, for add_weighted.
template <class T>
TS_DEVICE void store_weights(const Block& block, T* weights, const T (&values)[kEach<T>][kEach<T>]) {
  for (int i = 0; i < kEach<T>; ++i)
    for (int j = 0; j < kEach<T>; ++j)
      weights[(thread_row(block) + i * kSquare) * kWeightPitch<T> + thread_col(block) + j * kSquare] =
          values[i][j];
}

// sums[i][w] += weights of row i times the rows of x, columns from first_col on. All threads of the block;
// after it the weights and `shared` are free.
template <int W, class S, class T>
TS_DEVICE void add_weighted(const Block& block, T (&sums)[kEach<T>][W], const TileRows<S, T>& x,
                            std::int64_t first_col, T* shared) {
  constexpr int n = kEach<T>;
  constexpr int kCols = kSquare * W;
  static_assert(kStrip * kCols * static_cast<int>(sizeof(T)) <= kOperandBytes<T>);
  const T* weights = shared + 2 * kTile<T> * kPitch + thread_row(block) * kWeightPitch<T>;
  for (int at = 0; at < x.rows; at += kStrip) {
    load_chunk(block, shared, x, {at, kStrip, first_col, kCols, kCols});
    block.sync();
    for (int k = 0; k < kStrip; k += 4) {
      Four<T> p[n];
      for (int i = 0; i < n; ++i) p[i] = four_at(weights + i * kSquare * kWeightPitch<T> + at + k);
      for (int u = 0; u < 4; ++u) {
        T v[W];
        const T* from = shared + (k + u) * kCols;
        if constexpr (W < 4) {
          for (int w = 0; w < W; ++w) v[w] = from[result_col<W>(block, w)];
        } else {
          for (int w = 0; w < W; w += 4) {
            const Four<T> four = four_at(from + result_col<W>(block, w));
            for (int e = 0; e < 4; ++e) v[w + e] = four.x[e];
          }
        }
        for (int i = 0; i < n; ++i)
          for (int w = 0; w < W; ++w) sums[i][w] = std::fma(p[i].x[u], v[w], sums[i][w]);
      }
    }
    block.sync();
  }
}

// Of the accumulator's type.
template <class S>
using AccumulatorOf = std::conditional_t<std::is_same_v<S, double>, double, float>;

}  // namespace tessera::cuda
