#include "ops/window/sparse_rows.h"

#include <algorithm>

#include "ops/cpu/parallel.h"

namespace tessera::cpu {
namespace {

constexpr std::int64_t kColumns = 2048;  // numbers of a row that are worked on at a time
constexpr std::int64_t kPiece = 32768;   // products of one piece of work

// y (+)= Σ w[t] x[t], N inputs at once.
template <int N, bool kFirst, class T>
void add_columns(T* __restrict y, const T* const* x, const T* w, std::int64_t n) {
  for (std::int64_t i = 0; i < n; ++i) {
    T s = w[0] * x[0][i];
    if constexpr (N > 1) s += w[1] * x[1][i];
    if constexpr (N > 2) s += w[2] * x[2][i];
    if constexpr (N > 3) s += w[3] * x[3][i];
    y[i] = kFirst ? s : y[i] + s;
  }
}

template <bool kFirst, class T>
void add_some(T* y, const T* const* x, const T* w, std::int64_t n, std::int64_t taps) {
  if (taps == 1) add_columns<1, kFirst>(y, x, w, n);
  if (taps == 2) add_columns<2, kFirst>(y, x, w, n);
  if (taps == 3) add_columns<3, kFirst>(y, x, w, n);
  if (taps == 4) add_columns<4, kFirst>(y, x, w, n);
}

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
  explicit Product(const ApplyRowsArgs& args)
      : rows_(*args.rows),
        weight_(rows_.weight.begin(), rows_.weight.end()),
        taps_(taps_of_all(rows_)),
        y_(args.y.data<T>()),
        x_(args.x.data<T>()),
        in_(args.x.size(1)),
        inner_(args.x.size(2)) {
    if (inner_ == 1 && taps_ == 1) find_runs();
  }

  // Rows [lo, hi) of all, counted through the outer dim.
  void run(std::int64_t lo, std::int64_t hi) const {
    const std::int64_t m = rows_.rows();
    while (lo < hi) {
      const std::int64_t from = lo % m;
      const std::int64_t to = std::min(m, from + hi - lo);
      const T* x = x_ + lo / m * in_ * inner_;
      T* y = y_ + (lo - from) * inner_;
      if (inner_ == 1) {
        line(y, x, from, to);
      } else {
        for (std::int64_t o = from; o < to; ++o) combine(y + o * inner_, x, o);
      }
      lo += to - from;
    }
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

  void combine(T* y, const T* x, std::int64_t o) const {
    const std::int64_t begin = rows_.first[static_cast<std::size_t>(o)];
    const std::int64_t end = rows_.first[static_cast<std::size_t>(o) + 1];
    if (begin == end) std::fill(y, y + inner_, T(0));
    for (std::int64_t j = 0; j < inner_; j += kColumns) {
      const std::int64_t n = std::min(kColumns, inner_ - j);
      for (std::int64_t t = begin; t < end; t += 4) {
        const std::int64_t taps = std::min<std::int64_t>(4, end - t);
        const T* from[4] = {};
        for (std::int64_t k = 0; k < taps; ++k)
          from[k] = x + rows_.index[static_cast<std::size_t>(t + k)] * inner_ + j;
        const T* weights = weight_.data() + t;
        if (t == begin) {
          add_some<true>(y + j, from, weights, n, taps);
        } else {
          add_some<false>(y + j, from, weights, n, taps);
        }
      }
    }
  }

  const SparseRows& rows_;
  std::vector<T> weight_;
  std::int64_t taps_;
  std::vector<Run> runs_;
  T* y_;
  const T* x_;
  std::int64_t in_;
  std::int64_t inner_;
};

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
      const Product<T> product(args);
      parallel_for(pieces, threads,
                   [&](std::int64_t p) { product.run(p * chunk, std::min(rows, (p + 1) * chunk)); });
    }
  });
}

}  // namespace tessera::cpu
