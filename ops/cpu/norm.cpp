#include "ops/cpu/norm.h"

#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/cpu/rows.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

void check_rows(const char* op, const Array& x, const Array& like) {
  TS_CHECK(x.dim() == 2 && x.sizes() == like.sizes() && x.is_contiguous(), op,
           "operand of sizes {} and strides {}; contiguous rows of sizes {} are needed", x.sizes().str(),
           x.strides().str(), like.sizes().str());
  TS_CHECK(x.dtype() == like.dtype(), op, "operands of types {} and {}; they must be equal",
           name_of(x.dtype()), name_of(like.dtype()));
}

void check_vector(const char* op, const Array& x, std::int64_t n, DType dtype) {
  if (!x.defined()) return;
  TS_CHECK(x.numel() == n && x.is_contiguous() && x.dtype() == dtype, op,
           "vector of {} {}; a contiguous one of {} elements of type {} is needed", x.numel(),
           name_of(x.dtype()), n, name_of(dtype));
}

DType accumulator(DType t) { return t == DType::F64 ? DType::F64 : DType::F32; }

// A vector of `cols` numbers in the computing type: in place, or converted into `buffer`. Null if undefined.
template <class S>
const Compute<S>* vector_in(const Array& x, std::int64_t cols, std::vector<Compute<S>>& buffer) {
  if (!x.defined()) return nullptr;
  if constexpr (!std::is_same_v<S, Compute<S>>) buffer.resize(static_cast<std::size_t>(cols));
  return row_in<S>(x.data<S>(), 1, cols, buffer.data());
}

template <class S>
void forward(const LayerNormArgs& args) {
  using T = Compute<S>;
  const std::int64_t rows = args.x.size(0);
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  std::vector<T> bias_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* bias = vector_in<S>(args.bias, cols, bias_buffer);
  T* mean = args.mean.defined() ? args.mean.data<T>() : nullptr;
  T* rstd = args.rstd.defined() ? args.rstd.data<T>() : nullptr;
  const auto kernel = blocks_of<T>(row_table()).layer_norm;
  const std::int64_t group = std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(cols, 1));
  const int threads = threads_for(8.0 * static_cast<double>(args.x.numel()));
  parallel_for(ceil_div(rows, group), threads, [&](std::int64_t piece) {
    std::vector<T> buffer(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(2 * cols));
    for (std::int64_t r = piece * group; r < std::min(rows, (piece + 1) * group); ++r) {
      T stats[2] = {};
      S* y = args.y.data<S>() + r * cols;
      T* row = row_out<S>(y, 1, buffer.data());
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer.data() + cols);
      kernel(row, x, weight, bias, cols, args.eps, stats);
      row_done<S>(y, 1, cols, row);
      if (mean != nullptr) mean[r] = stats[0];
      if (rstd != nullptr) rstd[r] = stats[1];
    }
  });
}

constexpr std::int64_t kMaxParts = 32;

// Sums the parts' rows in order, in double.
template <class S>
void combine(const Array& out, const std::vector<Compute<S>>& parts, std::int64_t cols) {
  if (!out.defined()) return;
  std::vector<double> sum(static_cast<std::size_t>(cols), 0.0);
  blocks_of<Compute<S>>(reduce_table())
      .add_columns(sum.data(), parts.data(),
                   static_cast<std::int64_t>(parts.size()) / std::max<std::int64_t>(cols, 1), cols, cols);
  S* p = out.data<S>();
  for (std::int64_t j = 0; j < cols; ++j)
    p[j] = static_cast<S>(static_cast<Compute<S>>(sum[static_cast<std::size_t>(j)]));
}

template <class S>
void backward(const LayerNormBackwardArgs& args) {
  using T = Compute<S>;
  const std::int64_t rows = args.x.size(0);
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* mean = args.mean.data<T>();
  const T* rstd = args.rstd.data<T>();
  // Parts of the rows, each with its own sums for dweight and dbias.
  const std::int64_t group =
      std::max(ceil_div(rows, kMaxParts), std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(cols, 1)));
  const std::int64_t parts = ceil_div(rows, group);
  const auto sums = static_cast<std::size_t>(parts * cols);
  std::vector<T> dweight(args.dweight.defined() ? sums : 0);
  std::vector<T> dbias(args.dbias.defined() ? sums : 0);
  const auto kernel = blocks_of<T>(row_table()).layer_norm_backward;
  const int threads = threads_for(12.0 * static_cast<double>(args.x.numel()));
  parallel_for(parts, threads, [&](std::int64_t part) {
    std::vector<T> buffer(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(3 * cols));
    T* dw = dweight.empty() ? nullptr : dweight.data() + part * cols;
    T* db = dbias.empty() ? nullptr : dbias.data() + part * cols;
    for (std::int64_t r = part * group; r < std::min(rows, (part + 1) * group); ++r) {
      const T stats[2] = {mean[r], rstd[r]};
      S* dx = args.dx.defined() ? args.dx.data<S>() + r * cols : nullptr;
      T* row = dx == nullptr ? nullptr : row_out<S>(dx, 1, buffer.data());
      const T* dy = row_in<S>(args.dy.data<S>() + r * cols, 1, cols, buffer.data() + cols);
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer.data() + 2 * cols);
      kernel(row, dw, db, dy, x, weight, cols, stats);
      if (dx != nullptr) row_done<S>(dx, 1, cols, row);
    }
  });
  combine<S>(args.dweight, dweight, cols);
  combine<S>(args.dbias, dbias, cols);
}

}  // namespace

void layer_norm(const LayerNormArgs& args) {
  const char* op = "layer_norm";
  check_rows(op, args.x, args.x);
  check_rows(op, args.y, args.x);
  TS_CHECK(is_floating(args.x.dtype()), op, "input of type {}; a floating type is needed",
           name_of(args.x.dtype()));
  check_vector(op, args.weight, args.x.size(1), args.x.dtype());
  check_vector(op, args.bias, args.x.size(1), args.x.dtype());
  check_vector(op, args.mean, args.x.size(0), accumulator(args.x.dtype()));
  check_vector(op, args.rstd, args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { forward<typename decltype(tag)::type>(args); });
}

void layer_norm_backward(const LayerNormBackwardArgs& args) {
  const char* op = "layer_norm_backward";
  check_rows(op, args.x, args.x);
  check_rows(op, args.dy, args.x);
  if (args.dx.defined()) check_rows(op, args.dx, args.x);
  TS_CHECK(is_floating(args.x.dtype()), op, "input of type {}; a floating type is needed",
           name_of(args.x.dtype()));
  TS_CHECK(args.mean.defined() && args.rstd.defined(), op, "mean and rstd of the forward pass are needed");
  for (const Array* v : {&args.weight, &args.dweight, &args.dbias})
    check_vector(op, *v, args.x.size(1), args.x.dtype());
  for (const Array* v : {&args.mean, &args.rstd})
    check_vector(op, *v, args.x.size(0), accumulator(args.x.dtype()));
  dispatch_floating(args.x.dtype(), [&](auto tag) { backward<typename decltype(tag)::type>(args); });
}

}  // namespace tessera::cpu
