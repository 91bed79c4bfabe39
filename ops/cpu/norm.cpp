#include "ops/cpu/norm.h"

#include <vector>

#include "ops/cpu/norm_rows.h"
#include "ops/cpu/pointwise_ops.h"

namespace tessera::cpu {

namespace {

template <class S>
void forward(const LayerNormArgs& args) {
  using T = Compute<S>;
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  std::vector<T> bias_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* bias = vector_in<S>(args.bias, cols, bias_buffer);
  T* mean = args.mean.defined() ? args.mean.data<T>() : nullptr;
  T* rstd = args.rstd.defined() ? args.rstd.data<T>() : nullptr;
  const auto kernel = blocks_of<T>(row_table()).layer_norm;
  const auto add = blocks_of<T>(pointwise_table()).binary[static_cast<std::size_t>(BinaryOp::Add)];
  for_row_groups<S>(args.x, 8.0, 3, [&](std::int64_t r, T* buffer) {
    T stats[2] = {};
    S* y = args.y.data<S>() + r * cols;
    T* row = row_out<S>(y, 1, buffer);
    const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer + cols);
    if (args.residual.defined()) {
      S* sum = args.sum.data<S>() + r * cols;
      T* added = row_out<S>(sum, 1, buffer + cols);
      add(added, x, row_in<S>(args.residual.data<S>() + r * cols, 1, cols, buffer + 2 * cols), cols, T(1),
          T(0));
      row_done<S>(sum, 1, cols, added);
      x = row_in<S>(sum, 1, cols, buffer + cols);
    }
    kernel(row, x, weight, bias, cols, args.eps, stats);
    row_done<S>(y, 1, cols, row);
    if (mean != nullptr) mean[r] = stats[0];
    if (rstd != nullptr) rstd[r] = stats[1];
  });
}

template <class S>
void backward(const LayerNormBackwardArgs& args) {
  using T = Compute<S>;
  const std::int64_t cols = args.x.size(1);
  std::vector<T> weight_buffer;
  const T* weight = vector_in<S>(args.weight, cols, weight_buffer);
  const T* mean = args.mean.data<T>();
  const T* rstd = args.rstd.data<T>();
  const RowParts parts(args.x.size(0), cols);
  const auto sums = static_cast<std::size_t>(parts.count * cols);
  std::vector<T> dweight(args.dweight.defined() ? sums : 0);
  std::vector<T> dbias(args.dbias.defined() ? sums : 0);
  const auto kernel = blocks_of<T>(row_table()).layer_norm_backward;
  const auto add = blocks_of<T>(pointwise_table()).binary[static_cast<std::size_t>(BinaryOp::Add)];
  const int threads = threads_for(12.0 * static_cast<double>(args.x.numel()));
  parallel_for(parts.count, threads, [&](std::int64_t part) {
    std::vector<T> buffer(std::is_same_v<S, T> ? 0 : static_cast<std::size_t>(4 * cols));
    T* dw = dweight.empty() ? nullptr : dweight.data() + part * cols;
    T* db = dbias.empty() ? nullptr : dbias.data() + part * cols;
    for (std::int64_t r = parts.first(part); r < parts.last(part); ++r) {
      const T stats[2] = {mean[r], rstd[r]};
      S* dx = args.dx.defined() ? args.dx.data<S>() + r * cols : nullptr;
      T* row = dx == nullptr ? nullptr : row_out<S>(dx, 1, buffer.data());
      const T* dy = row_in<S>(args.dy.data<S>() + r * cols, 1, cols, buffer.data() + cols);
      const T* x = row_in<S>(args.x.data<S>() + r * cols, 1, cols, buffer.data() + 2 * cols);
      kernel(row, dw, db, dy, x, weight, cols, stats);
      if (dx != nullptr && args.dsum.defined())
        add(row, row, row_in<S>(args.dsum.data<S>() + r * cols, 1, cols, buffer.data() + 3 * cols), cols,
            T(1), T(0));
      if (dx != nullptr) row_done<S>(dx, 1, cols, row);
    }
  });
  combine_parts<S>(args.dweight, dweight, cols);
  combine_parts<S>(args.dbias, dbias, cols);
}

}  // namespace

void check_residual(const char* op, const LayerNormArgs& args) {
  TS_CHECK(args.residual.defined() == args.sum.defined(), op, "a residual and its sum: both or none");
  if (!args.residual.defined()) return;
  check_rows(op, args.residual, args.x);
  check_rows(op, args.sum, args.x);
}

void layer_norm(const LayerNormArgs& args) {
  const char* op = "layer_norm";
  check_rows(op, args.x, args.x);
  check_rows(op, args.y, args.x);
  check_residual(op, args);
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
  for (const Array* a : {&args.dx, &args.dsum})
    if (a->defined()) check_rows(op, *a, args.x);
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
