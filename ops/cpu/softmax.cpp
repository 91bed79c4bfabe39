#include "ops/cpu/softmax.h"

#include <vector>

#include "ops/cpu/loops.h"
#include "ops/cpu/rows.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

// All dims but one, as a loop over rows along that one.
struct Rows {
  std::int64_t n = 0;  // length of a row
  Dims strides;        // of each operand along the row
  StridedLoop loop;    // over the rows
};

Rows rows_along(const char* op, int dim, std::initializer_list<const Array*> operands) {
  const Array& first = **operands.begin();
  for (const Array* a : operands)
    TS_CHECK(a->sizes() == first.sizes() && a->dtype() == first.dtype(), op,
             "operands {} {} and {} {}; sizes and types must be equal", name_of(a->dtype()), a->sizes().str(),
             name_of(first.dtype()), first.sizes().str());
  TS_CHECK(is_floating(first.dtype()), op, "input of type {}; a floating type is needed",
           name_of(first.dtype()));
  Rows rows;
  const int d = wrap_dim(op, dim, first.dim());
  Dims sizes = first.sizes();
  std::array<Dims, 3> strides;
  std::size_t k = 0;
  const bool scalar = sizes.empty();
  rows.n = scalar ? 1 : sizes[d];
  for (const Array* a : operands) {
    strides[k] = a->strides();
    rows.strides.push_back(scalar ? 1 : strides[k][d]);
    if (!scalar) strides[k].erase(d);
    ++k;
  }
  if (!scalar) sizes.erase(d);
  rows.loop = k == 2 ? make_loop(sizes, {&strides[0], &strides[1]})
                     : make_loop(sizes, {&strides[0], &strides[1], &strides[2]});
  return rows;
}

int row_threads(const Rows& rows) {
  return threads_for(20.0 * static_cast<double>(rows.loop.numel) * static_cast<double>(rows.n));
}
std::int64_t rows_per_piece(const Rows& rows) {
  return std::max<std::int64_t>(1, 16384 / std::max<std::int64_t>(rows.n, 1));
}

// Calls f(row offset of each operand, buffer of 3 n numbers) for every row.
template <class T, class F>
void for_each_row(const Rows& rows, const F& f) {
  if (rows.n == 0) return;
  for_each_run(rows.loop, row_threads(rows), rows_per_piece(rows), [&](Offsets at, std::int64_t count) {
    std::vector<T> buffer(static_cast<std::size_t>(3 * rows.n));
    for (std::int64_t i = 0; i < count; ++i) {
      f(at, buffer.data());
      for (int k = 0; k < rows.loop.operands; ++k)
        at[static_cast<std::size_t>(k)] += rows.loop.inner_stride(k);
    }
  });
}

}  // namespace

void softmax(const SoftmaxArgs& args) {
  const Rows rows = rows_along("softmax", args.dim, {&args.out, &args.x});
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    const auto& blocks = blocks_of<T>(row_table());
    const auto kernel = args.log ? blocks.log_softmax : blocks.softmax;
    for_each_row<T>(rows, [&](const Offsets& at, T* buffer) {
      S* out = args.out.data<S>() + at[0];
      const T* x = row_in<S>(args.x.data<S>() + at[1], rows.strides[1], rows.n, buffer);
      T* row = row_out<S>(out, rows.strides[0], buffer + rows.n);
      kernel(row, x, rows.n);
      row_done<S>(out, rows.strides[0], rows.n, row);
    });
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const Rows rows = rows_along("softmax backward", args.dim, {&args.dx, &args.dy, &args.y});
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    const auto& blocks = blocks_of<T>(row_table());
    const auto kernel = args.log ? blocks.log_softmax_backward : blocks.softmax_backward;
    for_each_row<T>(rows, [&](const Offsets& at, T* buffer) {
      S* dx = args.dx.data<S>() + at[0];
      const T* dy = row_in<S>(args.dy.data<S>() + at[1], rows.strides[1], rows.n, buffer);
      const T* y = row_in<S>(args.y.data<S>() + at[2], rows.strides[2], rows.n, buffer + rows.n);
      T* row = row_out<S>(dx, rows.strides[0], buffer + 2 * rows.n);
      kernel(row, dy, y, rows.n);
      row_done<S>(dx, rows.strides[0], rows.n, row);
    });
  });
}

}  // namespace tessera::cpu
