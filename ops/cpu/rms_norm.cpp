#include "ops/cpu/rms_norm.h"

#include <cmath>
#include <vector>

#include "ops/cpu/norm_rows.h"
#include "ops/cpu/simd/norm_table.h"

namespace tessera::cpu {

namespace {

// Long rows are summed in pieces, so that float accumulators do; the pieces are added in double.
constexpr std::int64_t kSum = 8192;

template <class T, class F>
T sum_of_pieces(std::int64_t n, const F& piece) {
  if (n <= kSum) return piece(std::int64_t{0}, n);
  double sum = 0;
  for (std::int64_t i = 0; i < n; i += kSum) sum += static_cast<double>(piece(i, std::min(kSum, n - i)));
  return static_cast<T>(sum);
}

template <class T>
T squares_of(const T* x, std::int64_t n) {
  const auto sum = blocks_of<T>(norm_table()).sum_squares;
  return sum_of_pieces<T>(n, [&](std::int64_t i, std::int64_t m) { return sum(x + i, m); });
}

template <class T>
T dot_of(const T* dy, const T* x, const T* weight, std::int64_t n) {
  const auto dot = blocks_of<T>(norm_table()).weighted_dot;
  return sum_of_pieces<T>(n, [&](std::int64_t i, std::int64_t m) {
    return dot(dy + i, x + i, weight == nullptr ? nullptr : weight + i, m);
  });
}

template <class S>
void forward(const RmsNormArgs& args) {
  using T = Compute<S>;
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* squares = args.squares.defined() ? args.squares.data<T>() : nullptr;
  T* rstd = args.rstd.data<T>();
  const auto kernel = blocks_of<T>(norm_table()).scaled;
  for_row_groups<S>(args.x, 4.0, 2, [&](std::int64_t r, T* buffer) {
    S* y = args.y.data<S>() + r * cols;
    T* row = row_out<S>(y, 1, buffer);
    const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer + cols);
    const T sum = squares != nullptr ? squares[r] : squares_of(x, cols);
    rstd[r] = static_cast<T>(1.0 / std::sqrt(static_cast<double>(sum) / args.count + args.eps));
    kernel(row, x, weight, cols, rstd[r]);
    row_done<S>(y, 1, cols, row);
  });
}

template <class S>
void backward(const RmsNormBackwardArgs& args) {
  using T = Compute<S>;
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* rstd = args.rstd.data<T>();
  const T* dots = args.dots.defined() ? args.dots.data<T>() : nullptr;
  const RowParts parts(args.x.size(0), cols);
  std::vector<T> dweight(static_cast<std::size_t>(args.dweight.defined() ? parts.count * cols : 0));
  const auto kernel = blocks_of<T>(norm_table()).rms_gradient;
  parallel_for(parts.count, threads_for(8.0 * static_cast<double>(args.x.numel())), [&](std::int64_t part) {
    std::vector<T> buffer(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(3 * cols));
    T* dw = dweight.empty() ? nullptr : dweight.data() + part * cols;
    for (std::int64_t r = parts.first(part); r < parts.last(part); ++r) {
      S* dx = args.dx.defined() ? args.dx.data<S>() + r * cols : nullptr;
      T* row = dx == nullptr ? nullptr : row_out<S>(dx, 1, buffer.data());
      const T* dy = row_in<S>(args.dy.data<S>() + r * cols, 1, cols, buffer.data() + cols);
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer.data() + 2 * cols);
      T stats[2] = {rstd[r], T(0)};
      if (dx != nullptr) {
        const double dot = static_cast<double>(dots != nullptr ? dots[r] : dot_of(dy, x, weight, cols));
        stats[1] = static_cast<T>(std::pow(static_cast<double>(rstd[r]), 3) * dot / args.count);
      }
      kernel(row, dw, dy, x, weight, cols, stats);
      if (dx != nullptr) row_done<S>(dx, 1, cols, row);
    }
  });
  combine_parts<S>(args.dweight, dweight, cols);
}

void check_data(const char* op, const Array& x) {
  check_rows(op, x, x);
  TS_CHECK(is_floating(x.dtype()), op, "input of type {}; a floating type is needed", name_of(x.dtype()));
}

}  // namespace

void row_squares(const RowSquaresArgs& args) {
  check_data("row_squares", args.x);
  check_vector("row_squares", args.squares, args.x.size(0), accumulator(args.x.dtype()));
  const std::int64_t cols = args.x.size(1);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    for_row_groups<S>(args.x, 2.0, 1, [&](std::int64_t r, T* buffer) {
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer);
      args.squares.data<T>()[r] = squares_of(x, cols);
    });
  });
}

void rms_norm(const RmsNormArgs& args) {
  const char* op = "rms_norm";
  check_data(op, args.x);
  check_rows(op, args.y, args.x);
  check_vector(op, args.weight, args.x.size(1), args.x.dtype());
  for (const Array* v : {&args.rstd, &args.squares})
    check_vector(op, *v, args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void row_dots(const RowDotsArgs& args) {
  const char* op = "row_dots";
  check_data(op, args.x);
  check_rows(op, args.dy, args.x);
  check_vector(op, args.weight, args.x.size(1), args.x.dtype());
  check_vector(op, args.dots, args.x.size(0), accumulator(args.x.dtype()));
  const std::int64_t cols = args.x.size(1);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    std::vector<T> weight_buffer;
    const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
    for_row_groups<S>(args.x, 3.0, 2, [&](std::int64_t r, T* buffer) {
      const T* dy = row_in<S>(args.dy.data<S>() + r * cols, 1, cols, buffer);
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer + cols);
      args.dots.data<T>()[r] = dot_of(dy, x, weight, cols);
    });
  });
}

void rms_norm_backward(const RmsNormBackwardArgs& args) {
  const char* op = "rms_norm_backward";
  check_data(op, args.x);
  check_rows(op, args.dy, args.x);
  if (args.dx.defined()) check_rows(op, args.dx, args.x);
  for (const Array* v : {&args.weight, &args.dweight}) check_vector(op, *v, args.x.size(1), args.x.dtype());
  for (const Array* v : {&args.rstd, &args.dots})
    check_vector(op, *v, args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace tessera::cpu
