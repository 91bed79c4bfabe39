#include "ops/cuda/attention_dropout.h"
#include "ops/cuda/attention_tile.h"

namespace tessera::cuda {
namespace {

// A tile of query rows against all keys. W columns of the result per thread and pass; heads with more than
// 16 W numbers take several passes, each of which makes the scores again. Without dropout nothing asks for
// it.
template <class S, int W, bool Drops>
struct Attend : Cooperative {
  using T = AccumulatorOf<S>;
  static constexpr int n = kEach<T>;
  // Of a multiprocessor: one hides what the other waits for. Shared memory has room for four or more,
  // registers for two if a thread has at most 128. Told, nvcc keeps to that and spills next to nothing; left
  // alone, it takes 128 for some types all the same, and spills. Where two would spill, one has all it wants.
  static constexpr int kLeastBlocks = std::is_same_v<S, double> || (Drops && W == 8) ? 1 : 2;
  AttendElements args;

  struct State {
    T o[n][W];
    T max[n];
    T sum[n];
  };

  TS_DEVICE void operator()(const Block& block) const {
    const AttentionExtent& e = args.in.extent;
    const std::int64_t tiles = (e.rows + kTile<T> - 1) / kTile<T>;
    const std::int64_t head = block.index() / tiles;
    TileAt at{};
    at.batch = head / e.heads;
    at.head = head % e.heads;
    at.row = block.index() % tiles * kTile<T>;
    at.rows = e.rows - at.row < kTile<T> ? e.rows - at.row : kTile<T>;
    std::int64_t col = 0;
    do {
      State state;
      begin(block, state, at, col);
      for (at.key = 0; at.key < e.keys; at.key += kTile<T>) {
        at.keys = e.keys - at.key < kTile<T> ? e.keys - at.key : kTile<T>;
        fold_keys(block, state, at, col);
      }
      finish(block, state, at, col);
      col += kSquare * W;
    } while (col < e.dv);
  }

 private:
  TS_DEVICE std::int64_t state_index(const TileAt& at, std::int64_t row) const {
    return (at.batch * args.in.extent.heads + at.head) * args.in.extent.rows + at.row + row;
  }
  TS_DEVICE std::int64_t out_index(const TileAt& at, std::int64_t row) const {
    return at.batch * args.out.batch + at.head * args.out.head + (at.row + row) * args.out.row;
  }

  TS_DEVICE void begin(const Block& block, State& s, const TileAt& at, std::int64_t col) const {
    for (int i = 0; i < n; ++i) {
      const int row = thread_row(block) + i * kSquare;
      const bool resumes = args.fold && row < at.rows;
      s.max[i] = -std::numeric_limits<T>::infinity();
      s.sum[i] = 0;
      if (resumes) {
        s.max[i] = Ptr<T>(static_cast<T*>(args.row_max))[state_index(at, row)];
        s.sum[i] = Ptr<T>(static_cast<T*>(args.row_sum))[state_index(at, row)];
      }
      for (int w = 0; w < W; ++w) {
        const std::int64_t c = col + result_col<W>(block, w);
        s.o[i][w] = 0;
        if (resumes && c < args.in.extent.dv)
          s.o[i][w] = Ptr<T>(static_cast<T*>(args.out.data))[out_index(at, row) + c];
      }
    }
  }

  TS_DEVICE void fold_keys(const Block& block, State& s, const TileAt& at, std::int64_t col) const {
    const Sight sight = sight_of(args.in.mask, at);
    if (sight == Sight::None) return;
    const AttentionElements& in = args.in;
    T* shared = block.shared<T>();
    const std::int64_t kv_head = at.head / (in.extent.heads / in.extent.key_heads);
    T scores[n][n] = {};
    auto q = tile_rows<S, T>(in.q, at.batch * in.q.batch + at.head * in.q.head, at.row, in.extent.rows);
    auto k = tile_rows<S, T>(in.k, at.batch * in.k.batch + kv_head * in.k.head, at.key, in.extent.keys);
    q.cols = k.cols = in.extent.d;
    q.factor = static_cast<T>(in.scale);
    multiply_rows(block, scores, q, k, shared);
    hide(block, scores, at, sight);
    for (int i = 0; i < n; ++i) update_row(block, s, scores[i], i);
    if constexpr (Drops) drop(block, scores, at);
    store_weights(block, shared + 2 * kTile<T> * kPitch, scores);
    auto v = tile_rows<S, T>(in.v, at.batch * in.v.batch + kv_head * in.v.head, at.key, in.extent.keys);
    v.cols = in.extent.dv;
    add_weighted<W>(block, s.o, v, col, shared);
  }

  TS_DEVICE void hide(const Block& block, T (&scores)[n][n], const TileAt& at, Sight sight) const {
    const AttentionMaskElements& mask = args.in.mask;
    const T hidden = -std::numeric_limits<T>::infinity();
    for (int i = 0; i < n; ++i) {
      const int row = thread_row(block) + i * kSquare;
      for (int j = 0; j < n; ++j) {
        const int key = thread_col(block) + j * kSquare;
        if (row >= at.rows || key >= at.keys) {
          scores[i][j] = hidden;
          continue;
        }
        if (mask.kind != MaskKind::None)
          scores[i][j] = masked(mask, scores[i][j], at, at.row + row, at.key + key);
        if (sight == Sight::Some && position(mask.keys, at.key + key) > position(mask.rows, at.row + row))
          scores[i][j] = hidden;
      }
    }
  }

  // Scores of a row to weights; the sixteen threads that share it come to the same numbers.
  TS_DEVICE void update_row(const Block& block, State& s, T (&scores)[n], int i) const {
    T most = scores[0];
    for (int j = 1; j < n; ++j) most = scores[j] > most ? scores[j] : most;
    for (int lane = kSquare / 2; lane > 0; lane /= 2) {
      const T other = block.shuffle_xor(most, lane);
      most = other > most ? other : most;
    }
    const T before = s.max[i];
    const T max = most > before ? most : before;
    const T shift = max == -std::numeric_limits<T>::infinity() ? T(0) : max;
    const T factor = math::vexp_flushed(before - shift);
    T sum = 0;
    for (int j = 0; j < n; ++j) {
      scores[j] = math::vexp_flushed(scores[j] - shift);
      sum += scores[j];
    }
    for (int lane = kSquare / 2; lane > 0; lane /= 2) sum += block.shuffle_xor(sum, lane);
    s.max[i] = max;
    s.sum[i] = s.sum[i] * factor + sum;
    for (int w = 0; w < W; ++w) s.o[i][w] *= factor;
  }

  TS_DEVICE void drop(const Block& block, T (&weights)[n][n], const TileAt& at) const {
    TS_UNROLL
    for (int i = 0; i < n; ++i) {
      const int row = thread_row(block) + i * kSquare;
      TS_UNROLL
      for (int j = 0; j < n; ++j) {
        const int key = thread_col(block) + j * kSquare;
        if (row < at.rows && key < at.keys)
          weights[i][j] = dropped(args.in.drop, kept(args.in.drop, at, row, key), weights[i][j]);
      }
    }
  }

  TS_DEVICE void finish(const Block& block, const State& s, const TileAt& at, std::int64_t col) const {
    const bool last = col + kSquare * W >= args.in.extent.dv;
    TS_UNROLL
    for (int i = 0; i < n; ++i) {
      const int row = thread_row(block) + i * kSquare;
      if (row >= at.rows) continue;
      const T factor = args.fold ? T(1) : s.sum[i] == T(0) ? T(0) : T(1) / s.sum[i];
      TS_UNROLL
      for (int w = 0; w < W; ++w) {
        const std::int64_t c = col + result_col<W>(block, w);
        if (c >= args.in.extent.dv) continue;
        if (args.fold)
          Ptr<T>(static_cast<T*>(args.out.data))[out_index(at, row) + c] = s.o[i][w];
        else
          Ptr<S>(static_cast<S*>(args.out.data))[out_index(at, row) + c] = convert<S>(s.o[i][w] * factor);
      }
      if (last && thread_col(block) == 0) finish_row(s, i, state_index(at, row));
    }
  }

  TS_DEVICE void finish_row(const State& s, int i, std::int64_t index) const {
    if (args.fold) {
      Ptr<T>(static_cast<T*>(args.row_max))[index] = s.max[i];
      Ptr<T>(static_cast<T*>(args.row_sum))[index] = s.sum[i];
    } else if (args.lse != nullptr) {
      Ptr<T>(static_cast<T*>(args.lse))[index] =
          s.sum[i] == T(0) ? -std::numeric_limits<T>::infinity() : s.max[i] + std::log(s.sum[i]);
    }
  }
};

template <class S, bool Drops>
void attend_tiles(const AttendElements& args, StreamHandle stream) {
  using T = AccumulatorOf<S>;
  const AttentionExtent& e = args.in.extent;
  const std::int64_t blocks = e.batch * e.heads * ((e.rows + kTile<T> - 1) / kTile<T>);
  const LaunchShape shape{blocks, kSquare * kSquare, kAttentionBytes<T>};
  // Doubles are rare: one width serves them, and less is compiled.
  if constexpr (!std::is_same_v<S, double>) {
    if (e.dv <= 2 * kSquare) return launch(Attend<S, 2, Drops>{{}, args}, shape, stream);
    if (e.dv <= 4 * kSquare) return launch(Attend<S, 4, Drops>{{}, args}, shape, stream);
  }
  launch(Attend<S, 8, Drops>{{}, args}, shape, stream);
}

template <class S>
void attend_typed(const AttendElements& args, StreamHandle stream) {
  args.in.drop.any ? attend_tiles<S, true>(args, stream) : attend_tiles<S, false>(args, stream);
}

// A warp a row. Rows that saw no key of the block are left alone.
template <class S>
struct AttentionMerge : Cooperative {
  using T = AccumulatorOf<S>;
  static constexpr int kLanes = 32;
  AttentionMergeElements args;
  TS_DEVICE void operator()(const Block& block) const {
    const T none = -std::numeric_limits<T>::infinity();
    const std::int64_t index = block.index() * (kThreads / kLanes) + block.thread() / kLanes;
    const int lane = block.thread() % kLanes;
    const bool inside = index < args.batch * args.heads * args.rows;
    const std::int64_t row = index % args.rows;
    const std::int64_t head = index / args.rows % args.heads;
    const std::int64_t batch = index / args.rows / args.heads;
    const std::int64_t at = (batch * args.heads + head) * args.state_rows + row;
    const Ptr<T> row_max(static_cast<T*>(args.row_max));
    const Ptr<T> row_sum(static_cast<T*>(args.row_sum));
    const T lse = inside ? Ptr<const T>(static_cast<const T*>(args.lse))[index] : none;
    const T before = inside ? row_max[at] : none;
    const T sum = inside ? row_sum[at] : T(0);
    block.sync();  // all have read what one writes
    if (!inside || lse == none) return;
    const T max = lse > before ? lse : before;
    const T shift = max == none ? T(0) : max;  // none with a NaN
    const T factor = math::vexp_flushed(before - shift);
    const T weight = math::vexp_flushed(lse - shift);
    const Ptr<T> o =
        Ptr<T>(static_cast<T*>(args.o.data)) + (batch * args.o.batch + head * args.o.head + row * args.o.row);
    const Ptr<const S> from = Ptr<const S>(static_cast<const S*>(args.block.data)) +
                              (batch * args.block.batch + head * args.block.head + row * args.block.row);
    for (std::int64_t c = lane; c < args.dv; c += kLanes)
      o[c] = std::fma(static_cast<T>(load(from[c])), weight, o[c] * factor);
    if (lane != 0) return;
    row_max[at] = max;
    row_sum[at] = std::fma(sum, factor, weight);
  }
};

template <class S>
struct AttentionFinish : Independent {
  using T = AccumulatorOf<S>;
  AttentionFinishElements args;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t cols = args.dv > 0 ? args.dv : 1;
    const std::int64_t number = global_thread(block);
    const std::int64_t index = number / cols;
    if (index >= args.batch * args.heads * args.rows) return;
    const std::int64_t col = number % cols;
    const std::int64_t row = index % args.rows;
    const std::int64_t head = index / args.rows % args.heads;
    const std::int64_t batch = index / args.rows / args.heads;
    const T sum = Ptr<const T>(static_cast<const T*>(args.row_sum))[index];
    const T factor = sum == T(0) ? T(0) : T(1) / sum;
    if (col < args.dv) {
      const T o = Ptr<const T>(static_cast<const T*>(
          args.o.data))[batch * args.o.batch + head * args.o.head + row * args.o.row + col];
      Ptr<S>(static_cast<S*>(
          args.out.data))[batch * args.out.batch + head * args.out.head + row * args.out.row + col] =
          convert<S>(o * factor);
    }
    if (col == 0 && args.lse != nullptr)
      Ptr<T>(static_cast<T*>(args.lse))[index] =
          sum == T(0) ? -std::numeric_limits<T>::infinity()
                      : Ptr<const T>(static_cast<const T*>(args.row_max))[index] + std::log(sum);
  }
};

// A thread a row: the sum is made as multiply_rows makes it.
template <class S>
struct AttentionDelta : Independent {
  using T = AccumulatorOf<S>;
  AttentionDeltaElements args;
  TS_DEVICE void operator()(const Block& block) const {
    const std::int64_t index = global_thread(block);
    if (index >= args.batch * args.heads * args.rows) return;
    const std::int64_t row = index % args.rows;
    const std::int64_t head = index / args.rows % args.heads;
    const std::int64_t batch = index / args.rows / args.heads;
    const auto at = [&](const HeadRows& h) {
      return Ptr<const S>(static_cast<const S*>(h.data)) + (batch * h.batch + head * h.head + row * h.row);
    };
    const Ptr<const S> dout = at(args.dout);
    const Ptr<const S> out = at(args.out);
    T sum = 0;
    for (std::int64_t c = 0; c < args.dv; ++c)
      sum = std::fma(static_cast<T>(load(dout[c])), static_cast<T>(load(out[c])), sum);
    Ptr<T>(static_cast<T*>(args.delta))[index] = sum;
  }
};

}  // namespace

void attend_elements(const AttendElements& args, StreamHandle stream) {
  dispatch_floating(args.in.dtype,
                    [&](auto tag) { attend_typed<typename decltype(tag)::type>(args, stream); });
}

void attention_finish_elements(const AttentionFinishElements& args, StreamHandle stream) {
  const std::int64_t cols = args.dv > 0 ? args.dv : 1;
  dispatch_floating(args.dtype, [&](auto tag) {
    launch(AttentionFinish<typename decltype(tag)::type>{{}, args},
           one_each(args.batch * args.heads * args.rows * cols), stream);
  });
}

void attention_merge_elements(const AttentionMergeElements& args, StreamHandle stream) {
  dispatch_floating(args.dtype, [&](auto tag) {
    using Merge = AttentionMerge<typename decltype(tag)::type>;
    constexpr std::int64_t kRows = Merge::kThreads / Merge::kLanes;
    const std::int64_t rows = args.batch * args.heads * args.rows;
    launch(Merge{{}, args}, {(rows + kRows - 1) / kRows, Merge::kThreads, 0}, stream);
  });
}

void attention_delta_elements(const AttentionDeltaElements& args, StreamHandle stream) {
  dispatch_floating(args.dtype, [&](auto tag) {
    launch(AttentionDelta<typename decltype(tag)::type>{{}, args},
           one_each(args.batch * args.heads * args.rows), stream);
  });
}

}  // namespace tessera::cuda
