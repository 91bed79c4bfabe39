#include "ops/cpu/norm_parts.h"

#include <vector>

#include "ops/cpu/norm_rows.h"
#include "ops/cpu/simd/norm_table.h"

namespace tessera::cpu {

namespace {

// Rows are worked on in pieces, so that float accumulators do and the scratch stays in cache.
constexpr std::int64_t kPiece = 4096;

// What the formulas read of one piece of a row.
template <class T>
struct Piece {
  std::int64_t at, n;
  const T* dy;
  const T* g;       // dy weight
  const T* normal;  // (x - mean) rstd
};

template <class S>
class Rows {
 public:
  using T = Compute<S>;
  Rows(const Array& dy, const Array& x, const Array& mean, const Array& rstd, const Array& weight)
      : cols_(x.size(1)),
        width_(std::min(kPiece, cols_)),
        dy_(dy.data<S>()),
        x_(x.data<S>()),
        mean_(mean.data<double>()),
        rstd_(rstd.data<T>()),
        weight_(vector_in<S>(weight, cols_, weight_buffer_)) {}

  // For pieces(): four rows of scratch, and another one for the caller.
  std::vector<T> scratch() const { return std::vector<T>(static_cast<std::size_t>(5 * width_)); }
  T* spare(std::vector<T>& scratch) const { return scratch.data() + 4 * width_; }

  template <class Body>
  void pieces(std::int64_t r, std::vector<T>& scratch, const Body& body) const {
    const auto& kernels = blocks_of<T>(norm_table());
    const T head = static_cast<T>(mean_[r]);
    const T rest = static_cast<T>(mean_[r] - static_cast<double>(head));
    const auto row = [&](std::int64_t i) { return scratch.data() + i * width_; };
    for (std::int64_t at = 0; at < cols_; at += width_) {
      const std::int64_t n = std::min(width_, cols_ - at);
      const T* dy = row_in<S>(dy_ + r * cols_ + at, 1, n, row(0));
      const T* x = row_in<S>(x_ + r * cols_ + at, 1, n, row(1));
      kernels.normalize(row(2), x, n, head, rstd_[r], -rest * rstd_[r]);
      if (weight_ != nullptr) kernels.scaled(row(3), dy, weight_ + at, n, T(1));
      body(Piece<T>{at, n, dy, weight_ != nullptr ? row(3) : dy, row(2)});
    }
  }

 private:
  std::int64_t cols_;
  std::int64_t width_;
  const S* dy_;
  const S* x_;
  const double* mean_;
  const T* rstd_;
  std::vector<T> weight_buffer_;
  const T* weight_;
};

template <class S>
void sums_of(const NormSumsArgs& args) {
  using T = Compute<S>;
  const Rows<S> rows(args.dy, args.x, args.mean, args.rstd, args.weight);
  const RowParts parts(args.x.size(0), args.x.size(1));
  T* sums = args.sums.data<T>();
  const auto kernel = blocks_of<T>(norm_table()).gradient_sums;
  parallel_for(parts.count, threads_for(6.0 * static_cast<double>(args.x.numel())), [&](std::int64_t part) {
    std::vector<T> scratch = rows.scratch();
    for (std::int64_t r = parts.first(part); r < parts.last(part); ++r) {
      double total[2] = {};
      rows.pieces(r, scratch, [&](const Piece<T>& p) {
        T both[2] = {};
        kernel(p.g, p.normal, p.n, T(0), both);
        total[0] += static_cast<double>(both[0]);
        total[1] += static_cast<double>(both[1]);
      });
      sums[r] = static_cast<T>(total[0]);
      sums[parts.rows + r] = static_cast<T>(total[1]);
    }
  });
}

template <class S>
void gradient_of(const NormGradientArgs& args) {
  using T = Compute<S>;
  const std::int64_t cols = args.x.size(1);
  const Rows<S> rows(args.dy, args.x, args.mean, args.rstd, args.weight);
  const RowParts parts(args.x.size(0), cols);
  const auto all = static_cast<std::size_t>(parts.count * cols);
  std::vector<T> dweight(args.dweight.defined() ? all : 0);
  std::vector<T> dbias(args.dbias.defined() ? all : 0);
  const T* rstd = args.rstd.data<T>();
  const T* sums = args.dx.defined() ? args.sums.data<T>() : nullptr;
  const auto add_up = blocks_of<T>(row_table()).norm_parameters;
  const auto gradient = blocks_of<T>(norm_table()).gradient;
  parallel_for(parts.count, threads_for(12.0 * static_cast<double>(args.x.numel())), [&](std::int64_t part) {
    std::vector<T> scratch = rows.scratch();
    T* dw = dweight.empty() ? nullptr : dweight.data() + part * cols;
    T* db = dbias.empty() ? nullptr : dbias.data() + part * cols;
    for (std::int64_t r = parts.first(part); r < parts.last(part); ++r)
      rows.pieces(r, scratch, [&](const Piece<T>& p) {
        add_up(dw == nullptr ? nullptr : dw + p.at, db == nullptr ? nullptr : db + p.at, p.dy, p.normal, p.n);
        if (sums == nullptr) return;
        S* dx = args.dx.data<S>() + r * cols + p.at;
        T* row = row_out<S>(dx, 1, rows.spare(scratch));
        const double per = static_cast<double>(rstd[r]) / args.count;
        const T c[4] = {rstd[r], T(0), static_cast<T>(-per * static_cast<double>(sums[parts.rows + r])),
                        static_cast<T>(-per * static_cast<double>(sums[r]))};
        if (args.count == 1) {  // exactly nothing, or NaN: not the rounding of a difference
          for (std::int64_t i = 0; i < p.n; ++i) row[i] = (p.g[i] - p.g[i]) + p.normal[i] * T(0);
        } else {
          gradient(row, p.g, p.normal, p.n, c);
        }
        row_done<S>(dx, 1, p.n, row);
      });
  });
  combine_parts<S>(args.dweight, dweight, cols);
  combine_parts<S>(args.dbias, dbias, cols);
}

void check(const char* op, const Array& x, const Array& dy, const Array& mean, const Array& rstd) {
  check_rows(op, x, x);
  check_rows(op, dy, x);
  TS_CHECK(is_floating(x.dtype()), op, "input of type {}; a floating type is needed", name_of(x.dtype()));
  TS_CHECK(mean.defined() && rstd.defined(), op, "mean and rstd of the forward pass are needed");
  check_vector(op, mean, x.size(0), DType::F64);
  check_vector(op, rstd, x.size(0), accumulator(x.dtype()));
}

}  // namespace

void layer_norm_sums(const NormSumsArgs& args) {
  const char* op = "layer_norm_sums";
  check(op, args.x, args.dy, args.mean, args.rstd);
  check_vector(op, args.weight, args.x.size(1), args.x.dtype());
  check_vector(op, args.sums, 2 * args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { sums_of<typename decltype(tag)::type>(args); });
}

void layer_norm_gradient(const NormGradientArgs& args) {
  const char* op = "layer_norm_gradient";
  check(op, args.x, args.dy, args.mean, args.rstd);
  if (args.dx.defined()) check_rows(op, args.dx, args.x);
  for (const Array* v : {&args.weight, &args.dweight, &args.dbias})
    check_vector(op, *v, args.x.size(1), args.x.dtype());
  TS_CHECK(args.sums.defined() || !args.dx.defined(), op, "dx needs the sums over the rows");
  check_vector(op, args.sums, 2 * args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { gradient_of<typename decltype(tag)::type>(args); });
}

}  // namespace tessera::cpu
