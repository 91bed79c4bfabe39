#include "ops/cpu/softmax.h"

#include "ops/cpu/loops.h"
#include "ops/cpu/rows.h"
#include "ops/cpu/workspace.h"
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

// f(rows of the operands) for every row; operand 0 is written, the others are read.
template <class S, class F>
void for_each_row(const Rows& rows, const std::array<const Array*, 3>& arrays, const F& f) {
  using T = Compute<S>;
  const auto operands = static_cast<std::size_t>(rows.loop.operands);
  if (rows.n == 0) return;
  for_each_run(rows.loop, row_threads(rows), rows_per_piece(rows),
               [&](const Offsets& at, std::int64_t count) {
                 T* buffer = Workspace::begin().take<T>(static_cast<std::int64_t>(operands) *
                                                        RowsBlock<S>::buffer_size(rows.n));
                 for (std::int64_t first = 0; first < count; first += kRowBlock) {
                   const std::int64_t m = std::min(kRowBlock, count - first);
                   const auto block = [&](std::size_t k) {
                     const int operand = static_cast<int>(std::min(k, operands - 1));
                     const std::int64_t between = rows.loop.inner_stride(operand);
                     S* x = arrays[static_cast<std::size_t>(operand)]->template data<S>() +
                            at[static_cast<std::size_t>(operand)] + first * between;
                     return RowsBlock<S>(x, {rows.strides[operand], between, m, rows.n},
                                         buffer + operand * RowsBlock<S>::buffer_size(rows.n));
                   };
                   const RowsBlock<S> out = block(0);
                   const RowsBlock<S> a = block(1);
                   const RowsBlock<S> b = block(2);
                   a.load();
                   if (operands == 3) b.load();
                   for (std::int64_t r = 0; r < m; ++r) f(out.row(r), a.row(r), b.row(r));
                   out.store();
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
    for_each_row<S>(rows, {&args.out, &args.x, nullptr},
                    [&](T* out, const T* x, const T*) { kernel(out, x, rows.n); });
  });
}

void softmax_backward(const SoftmaxBackwardArgs& args) {
  const Rows rows = rows_along("softmax backward", args.dim, {&args.dx, &args.dy, &args.y});
  dispatch_floating(args.y.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    const auto& blocks = blocks_of<T>(row_table());
    const auto kernel = args.log ? blocks.log_softmax_backward : blocks.softmax_backward;
    for_each_row<S>(rows, {&args.dx, &args.dy, &args.y},
                    [&](T* dx, const T* dy, const T* y) { kernel(dx, dy, y, rows.n); });
  });
}

}  // namespace tessera::cpu
