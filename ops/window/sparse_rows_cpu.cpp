#include "ops/window/sparse_rows.h"

#include <algorithm>
#include <array>
#include <type_traits>

#include "ops/cpu/block_sink.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/simd/window_table.h"
#include "ops/cpu/workspace.h"
#include "ops/window/window_blocks.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kPiece = 32768;  // products of one piece of work

// As many taps in every row; 0 if they differ.
std::int64_t taps_of_all(const SparseRows& rows) {
  const std::int64_t taps = rows.rows() == 0 ? 0 : rows.first[1];
  for (std::int64_t o = 0; o < rows.rows(); ++o)
    if (rows.first[static_cast<std::size_t>(o) + 1] != (o + 1) * taps) return 0;
  return taps;
}

template <class T>
class Product {
 public:
  // Of `count` matrices of inputs, each with `columns` rows.
  Product(const SparseRows& rows, std::int64_t inner, std::int64_t columns, std::int64_t count)
      : rows_(rows),
        weight_(rows_.weight.begin(), rows_.weight.end()),
        taps_(taps_of_all(rows_)),
        kernels_(blocks_of<T>(window_table())),
        inner_(inner) {
    if (inner_ == 1 && taps_ == 1) find_runs();
    if (inner_ == 1 && runs_.empty()) blocks_ = {rows, columns, count, WindowSum::Weighted};
  }

  // Outputs [from, to) of one matrix of inputs; y is where output 0 goes.
  void run(T* y, const T* x, std::int64_t from, std::int64_t to) const {
    if (inner_ == 1) return line(y, x, from, to);
    kernels_.rows(y + from * inner_, x,
                  {rows_.first.data(), rows_.index.data(), weight_.data(), from, to, inner_, taps_});
  }

  // Output o; its input itself where it is the same.
  const T* one(T* room, const T* x, std::int64_t o) const {
    const std::int64_t begin = rows_.first[static_cast<std::size_t>(o)];
    if (rows_.first[static_cast<std::size_t>(o) + 1] - begin == 1 &&
        weight_[static_cast<std::size_t>(begin)] == T(1))
      return x + rows_.index[static_cast<std::size_t>(begin)] * inner_;
    run(room - o * inner_, x, o, o + 1);
    return room;
  }

 private:
  // Outputs that copy neighbouring inputs.
  struct Run {
    std::int64_t output, input, length;
  };
  void find_runs() {
    for (std::int64_t o = 0; o < rows_.rows(); ++o) {
      const std::int64_t i = rows_.index[static_cast<std::size_t>(o)];
      if (weight_[static_cast<std::size_t>(o)] != T(1)) return runs_.clear();
      if (!runs_.empty() && runs_.back().input + runs_.back().length == i) {
        ++runs_.back().length;
      } else {
        runs_.push_back({o, i, 1});
      }
    }
    constexpr std::int64_t kWorthACopy = 8;
    if (static_cast<std::int64_t>(runs_.size()) * kWorthACopy > rows_.rows()) runs_.clear();
  }

  // Outputs [from, to) where the dim itself is contiguous.
  void line(T* y, const T* x, std::int64_t from, std::int64_t to) const {
    if (!runs_.empty()) {
      for (const Run& r : runs_) {
        const std::int64_t lo = std::max(from, r.output);
        const std::int64_t hi = std::min(to, r.output + r.length);
        if (lo < hi) std::copy_n(x + r.input + lo - r.output, hi - lo, y + lo);
      }
      return;
    }
    if (blocks_.empty()) return one_by_one(y, x, from, to);
    const std::int64_t lo = ceil_div(from, kernels_.lanes);
    // The last block of a line overlaps the one before, which may be another thread's.
    const bool last = to == rows_.rows() && to - kernels_.lanes >= from;
    const std::int64_t hi = last ? blocks_.blocks() : to / kernels_.lanes;
    if (hi <= lo) return one_by_one(y, x, from, to);
    one_by_one(y, x, from, lo * kernels_.lanes);
    kernels_.line(y, x, blocks_.line(), lo, hi);
    if (!last) one_by_one(y, x, hi * kernels_.lanes, to);
  }

  void one_by_one(T* y, const T* x, std::int64_t from, std::int64_t to) const {
    switch (taps_) {
      case 1:
        return even_line<1>(y, x, from, to);
      case 2:
        return even_line<2>(y, x, from, to);
      case 3:
        return even_line<3>(y, x, from, to);
      case 4:
        return even_line<4>(y, x, from, to);
      default:
        for (std::int64_t o = from; o < to; ++o) y[o] = dot(x, o);
    }
  }

  template <int N>
  void even_line(T* y, const T* x, std::int64_t from, std::int64_t to) const {
    const std::int64_t* index = rows_.index.data() + from * N;
    const T* weight = weight_.data() + from * N;
    for (std::int64_t o = from; o < to; ++o, index += N, weight += N) {
      T s = weight[0] * x[index[0]];
      for (int k = 1; k < N; ++k) s += weight[k] * x[index[k]];
      y[o] = s;
    }
  }

  // In the order of add_some, so that the layout in memory does not change the sum.
  T dot(const T* x, std::int64_t o) const {
    const std::int64_t begin = rows_.first[static_cast<std::size_t>(o)];
    const std::int64_t end = rows_.first[static_cast<std::size_t>(o) + 1];
    const std::int64_t* index = rows_.index.data();
    const T* weight = weight_.data();
    if (end - begin == 1) return weight[begin] * x[index[begin]];
    T sum = 0;
    for (std::int64_t t = begin; t < end; t += 4) {
      T four = weight[t] * x[index[t]];
      for (std::int64_t k = t + 1; k < std::min(t + 4, end); ++k) four += weight[k] * x[index[k]];
      sum = t == begin ? four : sum + four;
    }
    return sum;
  }

  const SparseRows& rows_;
  std::vector<T> weight_;
  std::int64_t taps_;
  std::vector<Run> runs_;
  BlockedWindows<T> blocks_;
  const WindowBlocks<T>& kernels_;
  std::int64_t inner_;
};

// Rows [lo, hi) of all, counted through the outer dim.
template <class T>
void run_rows(const ApplyRowsArgs& a, const Product<T>& product, std::int64_t lo, std::int64_t hi) {
  const std::int64_t m = a.y.size(1);
  const std::int64_t inner = a.y.size(2);
  while (lo < hi) {
    const std::int64_t from = lo % m;
    const std::int64_t to = std::min(m, from + hi - lo);
    product.run(a.y.data<T>() + (lo - from) * inner, a.x.data<T>() + lo / m * a.x.size(1) * inner, from, to);
    lo += to - from;
  }
}

// f of the number of taps, where it is one of these, as a constant.
template <class F>
void with_taps(std::int64_t taps, const F& f) {
  switch (taps) {
    case 1:
      return f(std::integral_constant<int, 1>());
    case 2:
      return f(std::integral_constant<int, 2>());
    case 3:
      return f(std::integral_constant<int, 3>());
    default:
      return f(std::integral_constant<int, 4>());
  }
}
template <class T>
T* weights_of(const SparseRows& rows, Workspace& space) {
  T* weights = space.take<T>(static_cast<std::int64_t>(rows.weight.size()));
  std::transform(rows.weight.begin(), rows.weight.end(), weights, [](double w) { return static_cast<T>(w); });
  return weights;
}

// Of a few results, before tables for vector kernels would be ready; false: not of these.
template <class T>
bool run_few(const ApplyTwoRowsArgs& a) {
  constexpr std::int64_t kFew = 1024;
  constexpr std::int64_t kMostTaps = 4;
  const std::int64_t outer_taps = taps_of_all(*a.outer);
  const std::int64_t inner_taps = taps_of_all(*a.inner);
  if (a.y.numel() > kFew || a.x.numel() > kFew || a.y.size(3) != 1 || outer_taps < 1 || inner_taps < 1 ||
      outer_taps > kMostTaps || inner_taps > kMostTaps)
    return false;
  const std::int64_t m = a.y.size(1);
  const std::int64_t from = a.x.size(2);
  const std::int64_t to = a.y.size(2);
  Workspace& space = Workspace::begin();
  const T* const outer = weights_of<T>(*a.outer, space);
  const T* const inner = weights_of<T>(*a.inner, space);
  T* const room = space.take<T>(a.y.size(0) * m * from);
  with_taps(outer_taps, [&](auto taps) {
    constexpr int kTaps = decltype(taps)::value;
    T* line = room;
    for (std::int64_t i = 0; i < a.y.size(0); ++i) {
      const T* x = a.x.data<T>() + i * a.x.size(1) * from;
      const std::int64_t* index = a.outer->index.data();
      const T* w = outer;
      for (std::int64_t o = 0; o < m; ++o, index += kTaps, w += kTaps, line += from)
        for (std::int64_t j = 0; j < from; ++j) {
          T sum = w[0] * x[index[0] * from + j];
          for (int k = 1; k < kTaps; ++k) sum += w[k] * x[index[k] * from + j];
          line[j] = sum;
        }
    }
  });
  with_taps(inner_taps, [&](auto taps) {
    constexpr int kTaps = decltype(taps)::value;
    T* y = a.y.data<T>();
    for (const T* x = room; x < room + a.y.size(0) * m * from; x += from, y += to) {
      const std::int64_t* index = a.inner->index.data();
      const T* w = inner;
      for (std::int64_t o = 0; o < to; ++o, index += kTaps, w += kTaps) {
        T sum = w[0] * x[index[0]];
        for (int k = 1; k < kTaps; ++k) sum += w[k] * x[index[k]];
        y[o] = sum;
      }
    }
  });
  return true;
}

// Some lines at a time: what has just been stored cannot be loaded at once in other portions.
template <class T>
void run_two_rows(const ApplyTwoRowsArgs& a, const Product<T>& outer, const Product<T>& inner, Interval lines,
                  bool past) {
  constexpr std::int64_t kMostLines = 8;
  constexpr std::int64_t kBytes = 8192;  // of lines that wait in the first-level cache
  const std::int64_t m = a.y.size(1);
  const std::int64_t to = a.y.size(2) * a.y.size(3);
  const std::int64_t from = a.x.size(2) * a.x.size(3);
  const std::int64_t together = std::clamp<std::int64_t>(
      kBytes / static_cast<std::int64_t>(sizeof(T)) / std::max<std::int64_t>(from, 1), 1, kMostLines);
  Workspace& scratch = Workspace::begin();
  T* room = scratch.take<T>(together * from);
  // Of a line that waits to go past the caches so many outputs that they are still in the first one.
  const std::int64_t step =
      past && a.y.size(3) > 1 ? std::max<std::int64_t>(1, kBlock / a.y.size(3)) : a.y.size(2);
  const BlockSink<T> out(a.y.data<T>(), past, step * a.y.size(3), scratch);
  std::array<const T*, kMostLines> x{};
  for (std::int64_t first = lines.lo; first < lines.hi; first += together) {
    const std::int64_t n = std::min(together, lines.hi - first);
    for (std::int64_t i = 0; i < n; ++i)
      x[static_cast<std::size_t>(i)] =
          outer.one(room + i * from, a.x.data<T>() + (first + i) / m * a.x.size(1) * from, (first + i) % m);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t o = 0; o < a.y.size(2); o += step) {
        const std::int64_t end = std::min(a.y.size(2), o + step);
        const std::int64_t at = (first + i) * to + o * a.y.size(3);
        T* y = out.place(at);
        inner.run(y - o * a.y.size(3), x[static_cast<std::size_t>(i)], o, end);
        out.done(at, (end - o) * a.y.size(3), y);
      }
  }
  if (past) stream_fence();
}

}  // namespace

SparseRows transposed(const SparseRows& rows, std::int64_t columns) {
  SparseRows t;
  t.first.assign(static_cast<std::size_t>(columns) + 1, 0);
  for (std::int64_t i : rows.index) ++t.first[static_cast<std::size_t>(i) + 1];
  for (std::size_t c = 1; c < t.first.size(); ++c) t.first[c] += t.first[c - 1];
  t.index.resize(rows.index.size());
  t.weight.resize(rows.index.size());
  std::vector<std::int64_t> at(t.first.begin(), t.first.end() - 1);
  for (std::int64_t o = 0; o < rows.rows(); ++o)
    for (auto k = static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o)]);
         k < static_cast<std::size_t>(rows.first[static_cast<std::size_t>(o) + 1]); ++k) {
      const auto to = static_cast<std::size_t>(at[static_cast<std::size_t>(rows.index[k])]++);
      t.index[to] = o;
      t.weight[to] = rows.weight[k];
    }
  return t;
}

void apply_rows(const ApplyRowsArgs& args) {
  const std::int64_t rows = args.y.size(0) * args.y.size(1);
  const std::int64_t inner = args.y.size(2);
  if (args.y.numel() == 0) return;
  const auto products = static_cast<std::int64_t>(args.rows->index.size());
  const std::int64_t per_row = std::max<std::int64_t>(1, products * inner / args.y.size(1));
  const std::int64_t chunk = std::max<std::int64_t>(1, kPiece / per_row);
  const std::int64_t pieces = ceil_div(rows, chunk);
  const int threads = threads_for(static_cast<double>(rows) * static_cast<double>(per_row));
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!kHalf<T>) {
      const Product<T> product(*args.rows, inner, args.x.size(1), args.y.size(0));
      parallel_for(pieces, threads, [&](std::int64_t p) {
        run_rows(args, product, p * chunk, std::min(rows, (p + 1) * chunk));
      });
    }
  });
}

void apply_two_rows(const ApplyTwoRowsArgs& args) {
  if (args.y.numel() == 0) return;
  const std::int64_t lines = args.y.size(0) * args.y.size(1);
  const auto terms = [](const SparseRows& rows) { return static_cast<std::int64_t>(rows.index.size()); };
  const std::int64_t per_line = std::max<std::int64_t>(
      1, (terms(*args.outer) * args.x.size(2) / args.y.size(1) + terms(*args.inner)) * args.y.size(3));
  const std::int64_t chunk = std::max<std::int64_t>(1, kPiece / per_line);
  const int threads = threads_for(static_cast<double>(lines) * static_cast<double>(per_line));
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (!kHalf<T>) {
      if (run_few<T>(args)) return;
      const Product<T> outer(*args.outer, args.x.size(2) * args.x.size(3), args.x.size(1), args.y.size(0));
      const Product<T> inner(*args.inner, args.y.size(3), args.x.size(2), lines);
      const bool past = past_caches(args.y, {&args.x});
      parallel_for(ceil_div(lines, chunk), threads, [&](std::int64_t p) {
        run_two_rows(args, outer, inner, {p * chunk, std::min(lines, (p + 1) * chunk)}, past);
      });
    }
  });
}

}  // namespace tessera::cpu
