#include "ops/cpu/reduce_integer.h"

#include <limits>

#include "runtime/error.h"

namespace tessera::cpu {

namespace {

// Output type R, input type T; f folds one element into the result.
template <class R, class T, class F>
void fold(const ReduceArgs& args, const ReduceLoops& loops, R start, F f) {
  R* out = args.out.data<R>();
  const T* x = args.x.data<T>();
  const StridedLoop& kept = loops.kept;
  const StridedLoop& reduced = loops.reduced;
  const LoopPieces all(reduced, std::numeric_limits<std::int64_t>::max());
  const int threads = threads_for(static_cast<double>(kept.numel) * static_cast<double>(reduced.numel));
  const std::int64_t group = std::max<std::int64_t>(1, 32768 / std::max<std::int64_t>(reduced.numel, 1));
  for_each_run(kept, threads, group, [&](const Offsets& at, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i) {
      const T* p = x + at[0] + i * kept.inner_stride(0);
      R acc = start;
      const auto run = [&](const Offsets& in, std::int64_t m) {
        for (std::int64_t j = 0; j < m; ++j) acc = f(acc, p[in[0] + j * reduced.inner_stride(0)]);
      };
      for (std::int64_t piece = 0; piece < all.count(); ++piece) all.run(piece, run);
      out[at[1] + i * kept.inner_stride(1)] = acc;
    }
  });
}

template <class R, class T>
void fold_kind(const ReduceArgs& args, const ReduceLoops& loops) {
  using Limits = std::numeric_limits<R>;
  using U = std::uint64_t;  // wraps instead of overflowing
  switch (args.kind) {
    case ReduceKind::Sum:
      return fold<R, T>(args, loops, R(0),
                        [](R a, T b) { return static_cast<R>(static_cast<U>(a) + static_cast<U>(b)); });
    case ReduceKind::Product:
      return fold<R, T>(args, loops, R(1),
                        [](R a, T b) { return static_cast<R>(static_cast<U>(a) * static_cast<U>(b)); });
    case ReduceKind::Max:
      return fold<R, T>(args, loops, Limits::lowest(),
                        [](R a, T b) { return b > a ? static_cast<R>(b) : a; });
    case ReduceKind::Min:
      return fold<R, T>(args, loops, Limits::max(), [](R a, T b) { return b < a ? static_cast<R>(b) : a; });
  }
}

}  // namespace

void reduce_integer(const ReduceArgs& args, const ReduceLoops& loops) {
  const DType in = args.x.dtype();
  const DType out = args.out.dtype();
  const bool extreme = args.kind == ReduceKind::Max || args.kind == ReduceKind::Min;
  TS_CHECK(out == in || (!extreme && out == DType::I64), "reduce",
           "output of type {} for an input of type {}", name_of(out), name_of(in));
  dispatch(in, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>) {
      if (out == in) {
        fold_kind<T, T>(args, loops);
      } else {
        fold_kind<std::int64_t, T>(args, loops);
      }
    }
  });
}

}  // namespace tessera::cpu
