#include "ops/cpu/pointwise.h"

#include <array>

#include "ops/cpu/block_sink.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/pointwise_scalar.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPiece = 32768;  // elements between two looks at the progress hook

// A long run of results that go past the caches: f(place, first, n) makes n of them.
template <class S, class F>
void run_past_caches(S* out, std::int64_t n, const F& f) {
  const BlockSink<S> sink(out, true, kBlock, Workspace::begin());
  for (std::int64_t i = 0; i < n; i += kBlock) {
    const std::int64_t m = std::min(kBlock, n - i);
    Compute<S>* place = sink.place(i);
    f(place, i, m);
    sink.done(i, m, place);
  }
  stream_fence();
}
bool runs_past_caches(const StridedLoop& loop, const Array& out, std::initializer_list<const Array*> in) {
  return loop.inner_stride(0) == 1 && loop.inner_size() >= kBlock && past_caches(out, in);
}

// Floating types: vector blocks, read and written in place where the memory is contiguous.
template <class S>
void unary_floating(const UnaryArgs& args, const StridedLoop& loop, int threads) {
  using T = Compute<S>;
  const auto kernel = blocks_of<T>(pointwise_table()).unary[static_cast<std::size_t>(args.op)];
  const auto alpha = static_cast<T>(args.alpha);
  const auto beta = static_cast<T>(args.beta);
  S* out = args.out.data<S>();
  const S* x = args.x.data<S>();
  const std::int64_t so = loop.inner_stride(0);
  const std::int64_t sx = loop.inner_stride(1);
  const bool past = runs_past_caches(loop, args.out, {&args.x});
  for_each_run(loop, threads, kPiece, [&](const Offsets& at, std::int64_t n) {
    S* o = out + at[0];
    const S* p = x + at[1];
    if (!past && std::is_same_v<S, T> && so == 1 && sx == 1) {
      kernel(reinterpret_cast<T*>(o), reinterpret_cast<const T*>(p), n, alpha, beta);
      return;
    }
    BlockReader<S> reader(p, sx);
    if (past)
      return run_past_caches(o, n, [&](T* place, std::int64_t i, std::int64_t m) {
        kernel(place, reader.read(i, m), m, alpha, beta);
      });
    BlockWriter<S> writer(o, so);
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      const T* in = reader.read(i, m);
      kernel(writer.place(i), in, m, alpha, beta);
      writer.write(i, m);
    }
  });
}

template <class S>
void binary_floating(const BinaryArgs& args, const StridedLoop& loop, int threads) {
  using T = Compute<S>;
  const auto kernel = blocks_of<T>(pointwise_table()).binary[static_cast<std::size_t>(args.op)];
  const auto alpha = static_cast<T>(args.alpha);
  const auto beta = static_cast<T>(args.beta);
  S* out = args.out.data<S>();
  const S* a = args.a.data<S>();
  const S* b = args.b.data<S>();
  const std::int64_t so = loop.inner_stride(0);
  const std::int64_t sa = loop.inner_stride(1);
  const std::int64_t sb = loop.inner_stride(2);
  const bool past = runs_past_caches(loop, args.out, {&args.a, &args.b});
  for_each_run(loop, threads, kPiece, [&](const Offsets& at, std::int64_t n) {
    S* o = out + at[0];
    const S* p = a + at[1];
    const S* q = b + at[2];
    if (!past && std::is_same_v<S, T> && so == 1 && sa == 1 && sb == 1) {
      kernel(reinterpret_cast<T*>(o), reinterpret_cast<const T*>(p), reinterpret_cast<const T*>(q), n, alpha,
             beta);
      return;
    }
    BlockReader<S> read_a(p, sa);
    BlockReader<S> read_b(q, sb);
    if (past)
      return run_past_caches(o, n, [&](T* place, std::int64_t i, std::int64_t m) {
        kernel(place, read_a.read(i, m), read_b.read(i, m), m, alpha, beta);
      });
    BlockWriter<S> writer(o, so);
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      const T* ia = read_a.read(i, m);
      const T* ib = read_b.read(i, m);
      kernel(writer.place(i), ia, ib, m, alpha, beta);
      writer.write(i, m);
    }
  });
}

void check_same_sizes(const char* op, const Array& out, const Array& x) {
  TS_CHECK(out.sizes() == x.sizes(), op, "output of sizes {} for an input of sizes {}; they must be equal",
           out.sizes().str(), x.sizes().str());
}

bool heavy(UnaryOp op) { return op >= UnaryOp::Gelu && op <= UnaryOp::PowScalar; }

}  // namespace

bool is_comparison(BinaryOp op) { return op >= BinaryOp::Eq && op < BinaryOp::kCount; }
bool writes_bool(UnaryOp op) { return op >= UnaryOp::LogicalNot && op < UnaryOp::kCount; }

void unary(const UnaryArgs& args) {
  const char* name = name_of(args.op);
  check_same_sizes(name, args.out, args.x);
  const DType wanted = writes_bool(args.op) ? DType::Bool : args.x.dtype();
  TS_CHECK(args.out.dtype() == wanted, name, "output of type {} given, {} is needed",
           tessera::name_of(args.out.dtype()), tessera::name_of(wanted));
  const StridedLoop loop = make_loop(args.out.sizes(), {&args.out.strides(), &args.x.strides()});
  const int threads = threads_for(static_cast<double>(loop.numel) * (heavy(args.op) ? 20.0 : 1.0));
  if (!is_floating(args.x.dtype()) || writes_bool(args.op)) return unary_scalar(args, loop, threads);
  dispatch_floating(args.x.dtype(),
                    [&](auto tag) { unary_floating<typename decltype(tag)::type>(args, loop, threads); });
}

void binary(const BinaryArgs& args) {
  const char* name = name_of(args.op);
  check_same_sizes(name, args.out, args.a);
  check_same_sizes(name, args.out, args.b);
  TS_CHECK(args.a.dtype() == args.b.dtype(), name, "operands of types {} and {}; they must be equal",
           tessera::name_of(args.a.dtype()), tessera::name_of(args.b.dtype()));
  const DType wanted = is_comparison(args.op) ? DType::Bool : args.a.dtype();
  TS_CHECK(args.out.dtype() == wanted, name, "output of type {} given, {} is needed",
           tessera::name_of(args.out.dtype()), tessera::name_of(wanted));
  const StridedLoop loop =
      make_loop(args.out.sizes(), {&args.out.strides(), &args.a.strides(), &args.b.strides()});
  const double cost = args.op >= BinaryOp::Pow && !is_comparison(args.op) ? 20.0 : 1.0;
  const int threads = threads_for(static_cast<double>(loop.numel) * cost);
  if (!is_floating(args.a.dtype()) || is_comparison(args.op)) return binary_scalar(args, loop, threads);
  dispatch_floating(args.a.dtype(),
                    [&](auto tag) { binary_floating<typename decltype(tag)::type>(args, loop, threads); });
}

}  // namespace tessera::cpu
