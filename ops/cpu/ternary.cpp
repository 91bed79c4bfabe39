#include "ops/cpu/ternary.h"

#include "ops/cpu/block_io.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/simd/ternary_table.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPiece = 32768;  // elements between two looks at the progress hook

template <class S>
void run(const TernaryArgs& args, const Array& c) {
  using T = Compute<S>;
  const StridedLoop loop =
      make_loop(args.out.sizes(), {&args.out.strides(), &args.a.strides(), &args.b.strides(), &c.strides()});
  const auto kernel = blocks_of<T>(ternary_table()).by_op[static_cast<std::size_t>(args.op)];
  const double cost = args.op == TernaryOp::Exp ? 20.0 : 1.0;
  for_each_run(loop, threads_for(static_cast<double>(loop.numel) * cost), kPiece,
               [&](const Offsets& at, std::int64_t n) {
                 BlockReader<S> read_a(args.a.data<S>() + at[1], loop.inner_stride(1));
                 BlockReader<S> read_b(args.b.data<S>() + at[2], loop.inner_stride(2));
                 BlockReader<S> read_c(c.data<S>() + at[3], loop.inner_stride(3));
                 BlockWriter<S> writer(args.out.data<S>() + at[0], loop.inner_stride(0));
                 for (std::int64_t i = 0; i < n; i += kBlock) {
                   const std::int64_t m = std::min(kBlock, n - i);
                   const T* a = read_a.read(i, m);
                   const T* b = read_b.read(i, m);
                   kernel(writer.place(i), a, b, read_c.read(i, m), m, static_cast<T>(args.alpha));
                   writer.write(i, m);
                 }
               });
}

}  // namespace

const char* name_of(TernaryOp op) {
  static constexpr const char* kNames[] = {"maximum_backward",
                                           "minimum_backward",
                                           "clamp_share",
                                           "clamp_min_share",
                                           "clamp_max_share",
                                           "share",
                                           "tie",
                                           "tie_or_nan",
                                           "quotient",
                                           "deviation",
                                           "exp_backward",
                                           "max_norm"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(TernaryOp::kCount));
  return kNames[static_cast<std::size_t>(op)];
}

void check_ternary(const TernaryArgs& args) {
  const char* op = name_of(args.op);
  TS_CHECK(is_floating(args.out.dtype()), op, "output of type {}; a floating type is needed",
           name_of(args.out.dtype()));
  for (const Array* x : {&args.a, &args.b, &args.c})
    TS_CHECK(!x->defined() || (x->sizes() == args.out.sizes() && x->dtype() == args.out.dtype()), op,
             "operand {} {} beside an output {} {}; sizes and types must be equal", name_of(x->dtype()),
             x->sizes().str(), name_of(args.out.dtype()), args.out.sizes().str());
  TS_CHECK(args.c.defined() || args.op >= TernaryOp::Share, op, "a third operand is needed");
}

void ternary(const TernaryArgs& args) {
  check_ternary(args);
  dispatch_floating(args.out.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (args.c.defined()) return run<S>(args, args.c);
    const Array none =
        Array::full({}, args.op == TernaryOp::Quotient ? 1.0 : 0.0, args.out.dtype(), args.out.device());
    run<S>(args, none.expand(args.out.sizes()));
  });
}

}  // namespace tessera::cpu
