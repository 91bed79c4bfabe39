// Softmax, norms over rows and sums of exponentials on the device: the checks of ops/cpu, then the launches.
#include "ops/cpu/norm_parts.h"
#include "ops/cpu/norm_rows.h"
#include "ops/cpu/rms_norm.h"
#include "ops/cuda/register.h"
#include "ops/cuda/row_kernels.h"
#include "ops/kernels.h"
#include "ops/norm/norm_kernels.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/cuda/array_walk.h"

namespace tessera::cuda {
namespace {

using cpu::check_rows;
using cpu::check_vector;

// The operands as rows along one dim; the first is written. The last may be missing.
RowElements rows_along(const char* op, int dim, std::initializer_list<const Array*> operands) {
  const Array& first = **operands.begin();
  for (const Array* a : operands)
    TS_CHECK(a->sizes() == first.sizes() && a->dtype() == first.dtype(), op,
             "operands {} {} and {} {}; sizes and types must be equal", name_of(a->dtype()), a->sizes().str(),
             name_of(first.dtype()), first.sizes().str());
  TS_CHECK(is_floating(first.dtype()), op, "input of type {}; a floating type is needed",
           name_of(first.dtype()));
  const int d = wrap_dim(op, dim, first.dim());
  const bool scalar = first.dim() == 0;
  Dims sizes = first.sizes();
  RowElements rows;
  rows.n = scalar ? 1 : sizes[d];
  if (!scalar) sizes.erase(d);
  std::array<Dims, 3> strides;
  std::array<Elements*, 3> elements{&rows.out, &rows.a, &rows.b};
  std::size_t k = 0;
  for (const Array* a : operands) {
    strides[k] = a->strides();
    rows.along[k] = scalar ? 1 : strides[k][d];
    if (!scalar) strides[k].erase(d);
    *elements[k] = elements_of(*a);
    ++k;
  }
  for (; k < 3; ++k) strides[k] = strides[0];
  rows.rows =
      make_walk<3>(sizes.size(), sizes.begin(), {strides[0].begin(), strides[1].begin(), strides[2].begin()});
  return rows;
}

void softmax_cuda(const cpu::SoftmaxArgs& args) {
  const RowElements rows = rows_along("softmax", args.dim, {&args.out, &args.x});
  if (args.out.numel() == 0) return;
  softmax_rows(rows, args.log, current_stream());
  check_launch("softmax");
}

void softmax_backward_cuda(const cpu::SoftmaxBackwardArgs& args) {
  const RowElements rows = rows_along("softmax backward", args.dim, {&args.dx, &args.dy, &args.y});
  if (args.dx.numel() == 0) return;
  softmax_backward_rows(rows, args.log, current_stream());
  check_launch("softmax backward");
}

void exp_rows_cuda(const cpu::ExpRowsArgs& args) {
  const char* op = "exp_rows";
  TS_CHECK(args.x.dim() == 2 && args.x.is_contiguous(), op, "x {} is not contiguous rows",
           args.x.sizes().str());
  TS_CHECK(args.x.dtype() == DType::F32 || args.x.dtype() == DType::F64, op,
           "type {}; f32 and f64 are supported", name_of(args.x.dtype()));
  for (const Array* a : {&args.max, &args.shift, &args.sum})
    check_vector(op, *a, args.x.size(0), args.x.dtype());
  if (args.x.size(0) == 0) return;
  exp_rows({{args.x.size(0), args.x.size(1), args.x.dtype()},
            args.max.raw(),
            args.shift.raw(),
            args.sum.raw(),
            args.x.raw(),
            args.sums_infinity},
           current_stream());
  check_launch(op);
}

// ---- norms over rows

void* raw_or_null(const Array& a) { return a.defined() ? a.raw() : nullptr; }

RowSizes sizes_of(const char* op, const Array& x) {
  check_rows(op, x, x);
  TS_CHECK(is_floating(x.dtype()), op, "input of type {}; a floating type is needed", name_of(x.dtype()));
  return {x.size(0), x.size(1), x.dtype()};
}
void check_columns(const char* op, const Array& x, std::initializer_list<const Array*> vectors) {
  for (const Array* v : vectors) check_vector(op, *v, x.size(1), x.dtype());
}
void check_statistics(const char* op, const Array& x, std::initializer_list<const Array*> vectors) {
  for (const Array* v : vectors) check_vector(op, *v, x.size(0), cpu::accumulator(x.dtype()));
}

void layer_norm_cuda(const cpu::LayerNormArgs& args) {
  const char* op = "layer_norm";
  const RowSizes sizes = sizes_of(op, args.x);
  check_rows(op, args.y, args.x);
  check_columns(op, args.x, {&args.weight, &args.bias});
  check_statistics(op, args.x, {&args.mean, &args.rstd});
  cpu::check_residual(op, args);
  if (sizes.rows == 0) return;
  if (args.residual.defined())
    kernels::binary(Device::Cuda, {args.sum, args.x, args.residual, cpu::BinaryOp::Add});
  const Array& x = args.residual.defined() ? args.sum : args.x;
  layer_norm_rows({sizes, args.y.raw(), raw_or_null(args.mean), raw_or_null(args.rstd), x.raw(),
                   raw_or_null(args.weight), raw_or_null(args.bias), args.eps},
                  current_stream());
  check_launch(op);
}

// The sums over rows need memory for their parts; it goes back in the order of the stream.
template <class Rows, class Launch>
void backward(const char* op, Rows b, const Launch& run) {
  const bool parameters = b.dweight != nullptr || b.dbias != nullptr;
  if (b.sizes.cols == 0 || (b.sizes.rows == 0 && !parameters)) return;
  b.cuts = column_cuts(1, b.sizes.rows, b.sizes.cols);
  const Array partial = Array::empty({parameters ? 2 * b.cuts.numbers() : 0}, DType::F64, Device::Cuda);
  b.partial = partial.data<double>();
  run(b, current_stream());
  check_launch(op);
}

void layer_norm_backward_cuda(const cpu::LayerNormBackwardArgs& args) {
  const char* op = "layer_norm_backward";
  NormBackwardRows b;
  b.sizes = sizes_of(op, args.x);
  check_rows(op, args.dy, args.x);
  for (const Array* a : {&args.dx, &args.dsum})
    if (a->defined()) check_rows(op, *a, args.x);
  TS_CHECK(args.mean.defined() && args.rstd.defined(), op, "mean and rstd of the forward pass are needed");
  check_columns(op, args.x, {&args.weight, &args.dweight, &args.dbias});
  check_statistics(op, args.x, {&args.mean, &args.rstd});
  b.dx = raw_or_null(args.dx);
  b.dweight = raw_or_null(args.dweight);
  b.dbias = raw_or_null(args.dbias);
  b.dy = args.dy.raw();
  b.x = args.x.raw();
  b.mean = args.mean.raw();
  b.rstd = args.rstd.raw();
  b.weight = raw_or_null(args.weight);
  const Array left =
      Array::empty({args.dweight.defined() ? b.sizes.rows : 0}, args.mean.dtype(), Device::Cuda);
  if (args.dweight.defined()) b.left = left.raw();
  backward(op, b, layer_norm_backward_rows);
  if (args.dx.defined() && args.dsum.defined())
    kernels::binary(Device::Cuda, {args.dx, args.dx, args.dsum, cpu::BinaryOp::Add});
}

void rms_norm_backward_cuda(const cpu::RmsNormBackwardArgs& args) {
  const char* op = "rms_norm_backward";
  NormBackwardRows b;
  b.sizes = sizes_of(op, args.x);
  check_rows(op, args.dy, args.x);
  if (args.dx.defined()) check_rows(op, args.dx, args.x);
  check_columns(op, args.x, {&args.weight, &args.dweight});
  check_statistics(op, args.x, {&args.rstd, &args.dots});
  b.dx = raw_or_null(args.dx);
  b.dweight = raw_or_null(args.dweight);
  b.dy = args.dy.raw();
  b.x = args.x.raw();
  b.rstd = args.rstd.raw();
  b.weight = raw_or_null(args.weight);
  b.dots = raw_or_null(args.dots);
  b.count = args.count;
  backward(op, b, rms_norm_backward_rows);
}

// Of NormSumsArgs or NormGradientArgs.
template <class Args>
NormPartRows part_of(const char* op, const Args& args) {
  const Array& x = args.x;
  NormPartRows n;
  n.sizes = sizes_of(op, x);
  check_rows(op, args.dy, x);
  TS_CHECK(args.mean.defined() && args.rstd.defined(), op, "mean and rstd of the forward pass are needed");
  check_vector(op, args.mean, x.size(0), DType::F64);
  check_statistics(op, x, {&args.rstd});
  check_columns(op, x, {&args.weight});
  n.dy = args.dy.raw();
  n.x = x.raw();
  n.mean = args.mean.template data<double>();
  n.rstd = args.rstd.raw();
  n.weight = raw_or_null(args.weight);
  return n;
}

void layer_norm_sums_cuda(const cpu::NormSumsArgs& args) {
  const char* op = "layer_norm_sums";
  NormPartRows n = part_of(op, args);
  check_vector(op, args.sums, 2 * args.x.size(0), cpu::accumulator(args.x.dtype()));
  if (n.sizes.rows == 0) return;
  n.sums = args.sums.raw();
  layer_norm_part_sums(n, current_stream());
  check_launch(op);
}

void layer_norm_gradient_cuda(const cpu::NormGradientArgs& args) {
  const char* op = "layer_norm_gradient";
  NormPartRows n = part_of(op, args);
  if (args.dx.defined()) check_rows(op, args.dx, args.x);
  check_columns(op, args.x, {&args.dweight, &args.dbias});
  TS_CHECK(args.sums.defined() || !args.dx.defined(), op, "dx needs the sums over the rows");
  check_vector(op, args.sums, 2 * args.x.size(0), cpu::accumulator(args.x.dtype()));
  n.dx = raw_or_null(args.dx);
  n.dweight = raw_or_null(args.dweight);
  n.dbias = raw_or_null(args.dbias);
  n.sums = raw_or_null(args.sums);
  n.count = args.count;
  backward(op, n, layer_norm_part_gradient);
}

void row_squares_cuda(const cpu::RowSquaresArgs& args) {
  const char* op = "row_squares";
  const RowSizes sizes = sizes_of(op, args.x);
  check_statistics(op, args.x, {&args.squares});
  if (sizes.rows == 0) return;
  row_dots({sizes, args.squares.raw(), nullptr, args.x.raw(), nullptr}, current_stream());
  check_launch(op);
}

void row_dots_cuda(const cpu::RowDotsArgs& args) {
  const char* op = "row_dots";
  const RowSizes sizes = sizes_of(op, args.x);
  check_rows(op, args.dy, args.x);
  check_columns(op, args.x, {&args.weight});
  check_statistics(op, args.x, {&args.dots});
  if (sizes.rows == 0) return;
  row_dots({sizes, args.dots.raw(), args.dy.raw(), args.x.raw(), raw_or_null(args.weight)}, current_stream());
  check_launch(op);
}

void rms_norm_cuda(const cpu::RmsNormArgs& args) {
  const char* op = "rms_norm";
  const RowSizes sizes = sizes_of(op, args.x);
  check_rows(op, args.y, args.x);
  check_columns(op, args.x, {&args.weight});
  check_statistics(op, args.x, {&args.rstd, &args.squares});
  if (sizes.rows == 0) return;
  rms_norm_rows({sizes, args.y.raw(), args.rstd.raw(), args.x.raw(), raw_or_null(args.weight),
                 raw_or_null(args.squares), args.count, args.eps},
                current_stream());
  check_launch(op);
}

}  // namespace

void register_rows() {
  kernels::softmax.set(Device::Cuda, &softmax_cuda);
  kernels::softmax_backward.set(Device::Cuda, &softmax_backward_cuda);
  kernels::exp_rows.set(Device::Cuda, &exp_rows_cuda);
  kernels::layer_norm.set(Device::Cuda, &layer_norm_cuda);
  kernels::layer_norm_backward.set(Device::Cuda, &layer_norm_backward_cuda);
  kernels::layer_norm_sums.set(Device::Cuda, &layer_norm_sums_cuda);
  kernels::layer_norm_gradient.set(Device::Cuda, &layer_norm_gradient_cuda);
  kernels::row_squares.set(Device::Cuda, &row_squares_cuda);
  kernels::rms_norm.set(Device::Cuda, &rms_norm_cuda);
  kernels::row_dots.set(Device::Cuda, &row_dots_cuda);
  kernels::rms_norm_backward.set(Device::Cuda, &rms_norm_backward_cuda);
}

}  // namespace tessera::cuda
