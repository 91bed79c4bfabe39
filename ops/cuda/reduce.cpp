// Reductions on the device: which dims stay is read off the shapes, as in ops/cpu/reduce.h.
#include "ops/cpu/reduce.h"

#include "ops/cuda/reduce_kernels.h"
#include "ops/cuda/register.h"
#include "ops/kernels.h"
#include "ops/reduce/reduce_kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

// The dims of x that stay or go, with their strides; sizes elsewhere are 1.
struct Split {
  Dims kept;
  Dims reduced;
};
Split split_of(const Array& out, const Array& x) {
  Split s{x.sizes(), x.sizes()};
  for (int d = 0; d < x.dim(); ++d) (out.size(d) == 1 && x.size(d) != 1 ? s.kept : s.reduced)[d] = 1;
  return s;
}

Walk<1> inner_of(const Split& split, const Array& x) {
  return make_walk<1>(x.dim(), split.reduced.begin(), {x.strides().begin()});
}

Combine kind_of(cpu::ReduceKind kind) {
  switch (kind) {
    case cpu::ReduceKind::Sum:
      return Combine::Sum;
    case cpu::ReduceKind::Max:
      return Combine::Max;
    case cpu::ReduceKind::Min:
      return Combine::Min;
    case cpu::ReduceKind::Product:
      break;
  }
  return Combine::Product;
}

void reduce_cuda(const cpu::ReduceArgs& args) {
  if (args.out.numel() == 0) return;
  const Split split = split_of(args.out, args.x);
  ReduceElements e;
  e.rows =
      make_walk<2>(args.x.dim(), split.kept.begin(), {args.out.strides().begin(), args.x.strides().begin()});
  e.inner = inner_of(split, args.x);
  e.out = elements_of(args.out);
  e.x = elements_of(args.x);
  e.kind = kind_of(args.kind);
  const std::int64_t pieces = reduce_pieces(e);
  // Eight bytes a piece, freed in the order of the stream.
  const Array partial = Array::empty({pieces > 1 ? pieces * e.rows.numel : 0}, DType::F64, Device::Cuda);
  reduce_elements(e, pieces, partial.raw(), current_stream());
  check_launch("reduce");
}

void power_sums_cuda(const cpu::PowerSumsArgs& args) {
  const char* op = "power_sums";
  TS_CHECK(args.out.dtype() == DType::F64 && is_floating(args.x.dtype()), op,
           "output of type {} for an input of type {}; f64 and a floating type are needed",
           name_of(args.out.dtype()), name_of(args.x.dtype()));
  if (args.out.numel() == 0) return;
  const Split split = split_of(args.out, args.x);
  PowerElements e;
  e.rows =
      make_walk<2>(args.x.dim(), split.kept.begin(), {args.out.strides().begin(), args.x.strides().begin()});
  e.inner = inner_of(split, args.x);
  e.out = args.out.data<double>();
  e.x = elements_of(args.x);
  e.power = args.power;
  const std::int64_t pieces = reduce_pieces(e);
  const Array partial = Array::empty({pieces > 1 ? pieces * e.rows.numel : 0}, DType::F64, Device::Cuda);
  power_elements(e, pieces, partial.data<double>(), current_stream());
  check_launch(op);
}

void moments_cuda(const cpu::MomentsArgs& args) {
  if (args.mean.numel() == 0) return;
  const Split split = split_of(args.mean, args.x);
  MomentElements e;
  e.rows = make_walk<3>(args.x.dim(), split.kept.begin(),
                        {args.mean.strides().begin(), args.m2.strides().begin(), args.x.strides().begin()});
  e.inner = inner_of(split, args.x);
  e.mean = elements_of(args.mean);
  e.m2 = elements_of(args.m2);
  e.x = elements_of(args.x);
  moment_elements(e, current_stream());
  check_launch("moments");
}

void prod_gradient_cuda(const cpu::ProdGradientArgs& args) {
  cpu::check_prod_gradient(args);
  if (args.x.numel() == 0) return;
  const Split split = split_of(args.y, args.x);
  ProdGradientElements e;
  e.rows = make_walk<4>(args.x.dim(), split.kept.begin(),
                        {args.dx.strides().begin(), args.x.strides().begin(), args.y.strides().begin(),
                         args.dy.strides().begin()});
  e.inner = make_walk<2>(args.x.dim(), split.reduced.begin(),
                         {args.dx.strides().begin(), args.x.strides().begin()});
  e.dx = elements_of(args.dx);
  e.x = elements_of(args.x);
  e.y = elements_of(args.y);
  e.dy = elements_of(args.dy);
  e.zeros = args.zeros.data<std::int64_t>();
  if (args.rest.defined()) e.rest = args.rest.data<double>();
  e.whole = args.whole;
  e.side_by_side = e.rows.dims > 0 && e.rows.stride[1][0] == 1;
  prod_gradient_elements(e, current_stream());
  check_launch("prod_gradient");
}

}  // namespace

void register_reductions() {
  kernels::reduce.set(Device::Cuda, &reduce_cuda);
  kernels::power_sums.set(Device::Cuda, &power_sums_cuda);
  kernels::moments.set(Device::Cuda, &moments_cuda);
  kernels::prod_gradient.set(Device::Cuda, &prod_gradient_cuda);
}

}  // namespace tessera::cuda
