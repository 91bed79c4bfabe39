// Element-wise kernels on the device: the checks of ops/cpu/pointwise.cpp, then one launch.
#include "ops/cpu/pointwise.h"

#include "ops/cuda/pointwise_kernels.h"
#include "ops/cuda/register.h"
#include "ops/cuda/ternary_kernels.h"
#include "ops/elementwise/ternary_kernel.h"
#include "ops/kernels.h"
#include "runtime/cuda/array_walk.h"
#include "runtime/error.h"

namespace tessera::cuda {
namespace {

void check_output(const char* name, const Array& out, DType wanted) {
  TS_CHECK(out.dtype() == wanted, name, "output of type {} given, {} is needed", name_of(out.dtype()),
           name_of(wanted));
}

void unary_cuda(const cpu::UnaryArgs& args) {
  const char* name = cpu::name_of(args.op);
  check_output(name, args.out, cpu::writes_bool(args.op) ? DType::Bool : args.x.dtype());
  if (args.out.numel() == 0) return;
  const UnaryElements e{
      walk_of(args.out, args.x), elements_of(args.out), elements_of(args.x), args.op, args.alpha, args.beta};
  if (!unary_elements(e, current_stream()))
    TS_FAIL(Dtype, name, "takes {} tensors, given {}", cpu::types_of(args.op), name_of(args.x.dtype()));
  check_launch(name);
}

void binary_cuda(const cpu::BinaryArgs& args) {
  const char* name = cpu::name_of(args.op);
  TS_CHECK(args.a.dtype() == args.b.dtype(), name, "operands of types {} and {}; they must be equal",
           name_of(args.a.dtype()), name_of(args.b.dtype()));
  check_output(name, args.out, cpu::is_comparison(args.op) ? DType::Bool : args.a.dtype());
  if (args.out.numel() == 0) return;
  const BinaryElements e{walk_of(args.out, args.a, args.b),
                         elements_of(args.out),
                         elements_of(args.a),
                         elements_of(args.b),
                         args.op,
                         args.alpha,
                         args.beta};
  if (!binary_elements(e, current_stream()))
    TS_FAIL(Dtype, name, "takes {} tensors, given {}", cpu::types_of(args.op), name_of(args.a.dtype()));
  check_launch(name);
}

void where_cuda(const cpu::WhereArgs& args) {
  if (args.out.numel() == 0) return;
  where_elements({walk_of(args.out, args.cond, args.a, args.b), elements_of(args.out), elements_of(args.cond),
                  elements_of(args.a), elements_of(args.b)},
                 current_stream());
  check_launch("where");
}

void ternary_cuda(const cpu::TernaryArgs& args) {
  cpu::check_ternary(args);
  if (args.out.numel() == 0) return;
  const bool three = args.c.defined();
  ternary_elements({walk_of(args.out, args.a, args.b, three ? args.c : args.b), elements_of(args.out),
                    elements_of(args.a), elements_of(args.b), three ? elements_of(args.c) : Elements{},
                    args.op == cpu::TernaryOp::Quotient ? 1.0 : 0.0, args.op, args.alpha},
                   current_stream());
  check_launch(cpu::name_of(args.op));
}

}  // namespace

void register_pointwise() {
  kernels::unary.set(Device::Cuda, &unary_cuda);
  kernels::binary.set(Device::Cuda, &binary_cuda);
  kernels::where.set(Device::Cuda, &where_cuda);
  kernels::ternary.set(Device::Cuda, &ternary_cuda);
}

}  // namespace tessera::cuda
