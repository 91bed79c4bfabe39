// Two passes, so that nobody adds to what another block writes: one over the query rows (dq and the gradient
// of the mask), one over the keys (dk and dv). Both make the probabilities again from lse.
#include <algorithm>

#include "ops/cuda/attention_dropout.h"
#include "ops/cuda/attention_tile.h"

namespace tessera::cuda {
namespace {

// What is known of one query row.
template <class T>
struct RowFacts {
  int row = 0;  // in its tile
  T lse = 0;
  T delta = 0;
};
// The score of one row and key, and the gradient of its weight; then what is left of the weight, and the
// score's gradient.
template <class T>
struct Pair {
  T& score;
  T& gradient;
  bool keep;
};

template <class S, bool Drops>
struct BackwardTile {
  using T = AccumulatorOf<S>;
  static constexpr int n = kEach<T>;
  using Scores = T[n][n];
  AttendBackwardElements args;

  TS_DEVICE std::int64_t key_head(std::int64_t head) const {
    return head / (args.in.extent.heads / args.in.extent.key_heads);
  }
  TS_DEVICE TileRows<S, T> rows_of(const HeadRows& h, const TileAt& at, std::int64_t cols) const {
    auto t = tile_rows<S, T>(h, at.batch * h.batch + at.head * h.head, at.row, args.in.extent.rows);
    t.cols = cols;
    return t;
  }
  TS_DEVICE TileRows<S, T> queries(const TileAt& at) const {
    auto t = rows_of(args.in.q, at, args.in.extent.d);
    t.factor = static_cast<T>(args.in.scale);
    return t;
  }
  TS_DEVICE TileRows<S, T> douts(const TileAt& at) const { return rows_of(args.dout, at, args.in.extent.dv); }
  TS_DEVICE TileRows<S, T> keys_of(const HeadRows& h, const TileAt& at, std::int64_t cols) const {
    auto t = tile_rows<S, T>(h, at.batch * h.batch + key_head(at.head) * h.head, at.key, args.in.extent.keys);
    t.cols = cols;
    return t;
  }
  TS_DEVICE TileRows<S, T> keys(const TileAt& at) const { return keys_of(args.in.k, at, args.in.extent.d); }
  TS_DEVICE TileRows<S, T> values(const TileAt& at) const {
    return keys_of(args.in.v, at, args.in.extent.dv);
  }

  TS_DEVICE std::int64_t row_index(const TileAt& at, std::int64_t row) const {
    return (at.batch * args.in.extent.heads + at.head) * args.in.extent.rows + at.row + row;
  }
  // Rows without any key give nothing.
  TS_DEVICE RowFacts<T> facts_of(const TileAt& at, int row) const {
    const T infinity = std::numeric_limits<T>::infinity();
    if (row >= at.rows) return {row, infinity, T(0)};
    const T lse = Ptr<const T>(static_cast<const T*>(args.lse))[row_index(at, row)];
    return {row, lse == -infinity ? infinity : lse,
            Ptr<const T>(static_cast<const T*>(args.delta))[row_index(at, row)]};
  }

  // As kept_of_thread, by a thread whose first row and key these are.
  TS_DEVICE std::uint32_t kept_of(const TileAt& at, int row, int key) const {
    if constexpr (Drops)
      return kept_of_thread<n>(args.in.drop, at, row, key);
    else
      return 0;
  }
  TS_DEVICE void weigh(const Pair<T>& pair, const TileAt& at, const RowFacts<T>& row, int key,
                       Sight sight) const {
    T score = 0;
    T gradient = 0;
    if (row.row < at.rows && key < at.keys) {
      const AttentionMaskElements& mask = args.in.mask;
      const std::int64_t i = at.row + row.row;
      const std::int64_t j = at.key + key;
      score = pair.score;
      if (mask.kind != MaskKind::None) score = masked(mask, score, at, i, j);
      if (sight == Sight::Some && position(mask.keys, j) > position(mask.rows, i))
        score = -std::numeric_limits<T>::infinity();
      score = math::vexp_flushed(score - row.lse);
      if constexpr (Drops) {
        const AttentionDropElements& drop = args.in.drop;
        gradient = score * (dropped(drop, pair.keep, pair.gradient) - row.delta);
        score = dropped(drop, pair.keep, score);
      } else {
        gradient = score * (pair.gradient - row.delta);
      }
    }
    pair.score = score;
    pair.gradient = gradient;
  }

  TS_DEVICE static std::int64_t length(std::int64_t first, std::int64_t end) {
    return end - first < kTile<T> ? end - first : kTile<T>;
  }
};

// Some rows of a gradient, columns from first_col on.
template <class T>
struct GradientRows {
  Ptr<T> data;
  std::int64_t pitch = 0;
  std::int64_t rows = 0;
  std::int64_t first_col = 0;
  std::int64_t cols = 0;  // of the whole row
  bool first = false;     // written, not added to
};
// A thread's part of what is added to them.
template <int W, class T>
TS_DEVICE void add_rows(const Block& block, const T (&sums)[kEach<T>][W], const GradientRows<T>& to,
                        T factor) {
  for (int i = 0; i < kEach<T>; ++i) {
    const int row = thread_row(block) + i * kSquare;
    if (row >= to.rows) continue;
    for (int w = 0; w < W; ++w) {
      const std::int64_t col = to.first_col + result_col<W>(block, w);
      if (col >= to.cols) continue;
      T& sum = to.data[row * to.pitch + col];
      sum = (to.first ? T(0) : sum) + factor * sums[i][w];
    }
  }
}

// Blocks of a multiprocessor, told because nvcc is of two minds from one type to the next. Two hide the time
// that drawing takes, as long as few registers are spilled for it; one leaves doubles their registers.
template <class T>
constexpr int least_blocks_of(bool drops) {
  return drops ? 2 : std::is_same_v<T, double> ? 1 : 0;
}

template <class S, int W, bool Drops>
struct GradientOfRows : Cooperative {
  using T = AccumulatorOf<S>;
  static constexpr int n = kEach<T>;
  static constexpr int kLeastBlocks = least_blocks_of<T>(Drops && W <= 4);
  BackwardTile<S, Drops> tile;

  TS_DEVICE void operator()(const Block& block) const {
    const AttentionExtent& e = tile.args.in.extent;
    const std::int64_t tiles = (e.rows + kTile<T> - 1) / kTile<T>;
    const std::int64_t head = block.index() / tiles;
    TileAt at{};
    at.batch = head / e.heads;
    at.head = head % e.heads;
    at.row = block.index() % tiles * kTile<T>;
    at.rows = tile.length(at.row, e.rows);
    RowFacts<T> facts[n];
    for (int i = 0; i < n; ++i) facts[i] = tile.facts_of(at, thread_row(block) + i * kSquare);
    std::int64_t col = 0;
    do {
      T sums[n][W] = {};
      for (at.key = 0; at.key < e.keys; at.key += kTile<T>) {
        at.keys = tile.length(at.key, e.keys);
        add_keys(block, sums, at, facts, col);
      }
      const HeadRows& dq = tile.args.dq;
      const Ptr<T> to =
          Ptr<T>(static_cast<T*>(dq.data)) + (at.batch * dq.batch + at.head * dq.head + at.row * dq.row);
      add_rows<W>(block, sums, {to, dq.row, at.rows, col, e.d, tile.args.first_of_dq},
                  static_cast<T>(tile.args.in.scale));
      col += kSquare * W;
    } while (col < e.d);
  }

 private:
  TS_DEVICE void add_keys(const Block& block, T (&sums)[n][W], const TileAt& at,
                          const RowFacts<T> (&facts)[n], std::int64_t col) const {
    const Sight sight = sight_of(tile.args.in.mask, at);
    if (sight == Sight::None) return;
    T* shared = block.shared<T>();
    const std::uint32_t keep = tile.kept_of(at, thread_row(block), thread_col(block));
    T scores[n][n] = {};
    T gradients[n][n] = {};
    multiply_rows(block, scores, tile.queries(at), tile.keys(at), shared);
    multiply_rows(block, gradients, tile.douts(at), tile.values(at), shared);
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j)
        tile.weigh({scores[i][j], gradients[i][j], (keep >> (i * n + j) & 1) != 0}, at, facts[i],
                   thread_col(block) + j * kSquare, sight);
    if (col == 0 && tile.args.dmask != nullptr) write_mask(block, gradients, at);
    store_weights(block, shared + 2 * kTile<T> * kPitch, gradients);
    add_weighted<W>(block, sums, tile.keys(at), col, shared);
  }

  TS_DEVICE void write_mask(const Block& block, const T (&gradients)[n][n], const TileAt& at) const {
    const Ptr<T> to(static_cast<T*>(tile.args.dmask));
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < n; ++j) {
        const int row = thread_row(block) + i * kSquare;
        const int key = thread_col(block) + j * kSquare;
        if (row < at.rows && key < at.keys)
          to[tile.row_index(at, row) * tile.args.in.extent.keys + at.key + key] = gradients[i][j];
      }
  }
};

// Tiles are turned: rows of threads are keys, columns are queries.
template <class S, int W, bool Drops>
struct GradientOfKeys : Cooperative {
  using T = AccumulatorOf<S>;
  static constexpr int n = kEach<T>;
  static constexpr int kLeastBlocks = least_blocks_of<T>(Drops && W == 2);
  BackwardTile<S, Drops> tile;

  TS_DEVICE void operator()(const Block& block) const {
    const AttentionExtent& e = tile.args.in.extent;
    const std::int64_t tiles = (e.keys + kTile<T> - 1) / kTile<T>;
    const std::int64_t group = e.heads / e.key_heads;
    const std::int64_t key_head = block.index() / tiles % e.key_heads;
    TileAt at{};
    at.batch = block.index() / tiles / e.key_heads;
    at.key = block.index() % tiles * kTile<T>;
    at.keys = tile.length(at.key, e.keys);
    std::int64_t col = 0;
    do {
      T dk[n][W] = {};
      T dv[n][W] = {};
      for (at.head = key_head * group; at.head < (key_head + 1) * group; ++at.head)
        for (at.row = 0; at.row < e.rows; at.row += kTile<T>) {
          at.rows = tile.length(at.row, e.rows);
          add_queries(block, dk, dv, at, col);
        }
      at.head = key_head * group;
      const bool first = tile.args.first_of_keys;
      add_rows<W>(block, dk, {to(tile.args.dk, at), tile.args.dk.row, at.keys, col, e.d, first}, T(1));
      add_rows<W>(block, dv, {to(tile.args.dv, at), tile.args.dv.row, at.keys, col, e.dv, first}, T(1));
      col += kSquare * W;
    } while (col < e.d || col < e.dv);
  }

 private:
  TS_DEVICE Ptr<T> to(const HeadRows& h, const TileAt& at) const {
    return Ptr<T>(static_cast<T*>(h.data)) +
           (at.batch * h.batch + tile.key_head(at.head) * h.head + at.key * h.row);
  }

  TS_DEVICE void add_queries(const Block& block, T (&dk)[n][W], T (&dv)[n][W], const TileAt& at,
                             std::int64_t col) const {
    const Sight sight = sight_of(tile.args.in.mask, at);
    if (sight == Sight::None) return;
    T* shared = block.shared<T>();
    T* weights = shared + 2 * kTile<T> * kPitch;
    const std::uint32_t keep = tile.kept_of(at, thread_col(block), thread_row(block));
    T scores[n][n] = {};
    T gradients[n][n] = {};
    multiply_rows(block, scores, tile.keys(at), tile.queries(at), shared);
    multiply_rows(block, gradients, tile.values(at), tile.douts(at), shared);
    for (int j = 0; j < n; ++j) {
      const RowFacts<T> facts = tile.facts_of(at, thread_col(block) + j * kSquare);
      for (int i = 0; i < n; ++i)
        tile.weigh({scores[i][j], gradients[i][j], (keep >> (j * n + i) & 1) != 0}, at, facts,
                   thread_row(block) + i * kSquare, sight);
    }
    store_weights(block, weights, scores);
    add_weighted<W>(block, dv, tile.douts(at), col, shared);
    store_weights(block, weights, gradients);
    add_weighted<W>(block, dk, tile.queries(at), col, shared);
  }
};

template <class S, int W, bool Drops>
void backward_wide(const AttendBackwardElements& args, StreamHandle stream) {
  using T = AccumulatorOf<S>;
  const AttentionExtent& e = args.in.extent;
  const auto tiles = [](std::int64_t rows) { return (rows + kTile<T> - 1) / kTile<T>; };
  const int threads = kSquare * kSquare;
  launch(GradientOfRows<S, W, Drops>{{}, {args}},
         {e.batch * e.heads * tiles(e.rows), threads, kAttentionBytes<T>}, stream);
  launch(GradientOfKeys<S, W, Drops>{{}, {args}},
         {e.batch * e.key_heads * tiles(e.keys), threads, kAttentionBytes<T>}, stream);
}

template <class S, bool Drops>
void backward_tiles(const AttendBackwardElements& args, StreamHandle stream) {
  // Doubles are rare: one width serves them, and less is compiled.
  if constexpr (!std::is_same_v<S, double>) {
    const std::int64_t most = std::max(args.in.extent.d, args.in.extent.dv);
    if (most <= 2 * kSquare) return backward_wide<S, 2, Drops>(args, stream);
    if (most <= 4 * kSquare) return backward_wide<S, 4, Drops>(args, stream);
  }
  backward_wide<S, 8, Drops>(args, stream);
}

template <class S>
void backward_typed(const AttendBackwardElements& args, StreamHandle stream) {
  args.in.drop.any ? backward_tiles<S, true>(args, stream) : backward_tiles<S, false>(args, stream);
}

}  // namespace

void attend_backward_elements(const AttendBackwardElements& args, StreamHandle stream) {
  dispatch_floating(args.in.dtype,
                    [&](auto tag) { backward_typed<typename decltype(tag)::type>(args, stream); });
}

}  // namespace tessera::cuda
