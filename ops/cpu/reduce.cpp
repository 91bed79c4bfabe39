#include "ops/cpu/reduce.h"

#include <limits>
#include <vector>

#include "ops/cpu/block_io.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/reduce_integer.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPiece = 32768;  // elements that one piece reads
constexpr std::int64_t kColumns = 512;  // accumulators of one strip: 4 KiB of doubles

// The operations, each with its accumulator. row() and columns() take up contiguous numbers.
template <class T>
struct SumPolicy {
  using Acc = double;
  static Acc identity() { return 0.0; }
  static void merge(Acc& a, Acc b) { a += b; }
  Acc row(const T* x, std::int64_t n, std::int64_t) const { return kernels.sum(x, n); }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    kernels.add_columns(acc, x, rows, stride, n);
  }
  const ReduceBlocks<T>& kernels = blocks_of<T>(reduce_table());
};

template <class T>
struct SquaresPolicy {
  using Acc = double;
  static Acc identity() { return 0.0; }
  static void merge(Acc& a, Acc b) { a += b; }
  Acc row(const T* x, std::int64_t n, std::int64_t output) const {
    return kernels.squares(x, n, centre[output]);
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t output) const {
    kernels.add_square_columns(acc, centre + output, x, rows, stride, n);
  }
  const double* centre;
  const ReduceBlocks<T>& kernels = blocks_of<T>(reduce_table());
};

template <class T, bool largest>
struct ExtremePolicy {
  using Acc = T;
  static Acc identity() {
    const T inf = std::numeric_limits<T>::infinity();
    return largest ? -inf : inf;
  }
  static void merge(Acc& a, Acc b) {
    if (b != b || (largest ? b > a : b < a)) a = b;
  }
  Acc row(const T* x, std::int64_t n, std::int64_t) const {
    return largest ? kernels.max(x, n) : kernels.min(x, n);
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    (largest ? kernels.max_columns : kernels.min_columns)(acc, x, rows, stride, n);
  }
  const ReduceBlocks<T>& kernels = blocks_of<T>(reduce_table());
};

template <class T>
struct ProductPolicy {
  using Acc = double;
  static Acc identity() { return 1.0; }
  static void merge(Acc& a, Acc b) { a *= b; }
  Acc row(const T* x, std::int64_t n, std::int64_t) const {
    Acc p = 1.0;
    for (std::int64_t i = 0; i < n; ++i) p *= static_cast<double>(x[i]);
    return p;
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) acc[j] *= static_cast<double>(x[r * stride + j]);
  }
};

// x of element type S reduced to one accumulator per output, in the order of the loop over outputs.
template <class S, class Policy>
class Reducer {
 public:
  using T = Compute<S>;
  using Acc = typename Policy::Acc;
  Reducer(const S* x, const ReduceLoops& loops, const Policy& policy)
      : x_(x), kept_(loops.kept), reduced_(loops.reduced), policy_(policy) {}

  std::vector<Acc> operator()() const {
    std::vector<Acc> result(static_cast<std::size_t>(kept_.numel), Policy::identity());
    if (kept_.numel == 0 || reduced_.numel == 0) return result;
    const bool by_rows = reduced_.inner_stride(0) == 1 || kept_.inner_stride(0) != 1;
    if (by_rows) {
      rows(result);
    } else {
      columns(result);
    }
    return result;
  }

 private:
  int threads() const {
    return threads_for(static_cast<double>(kept_.numel) * static_cast<double>(reduced_.numel));
  }
  std::int64_t kept_offset(std::int64_t output) const {
    const std::int64_t inner = kept_.inner_size();
    const detail::OuterCounter at(kept_, output / inner);
    return at.offsets()[0] + (output % inner) * kept_.inner_stride(0);
  }

  // One run of one output.
  Acc row(const S* x, std::int64_t n, std::int64_t output) const {
    const std::int64_t stride = reduced_.inner_stride(0);
    if constexpr (std::is_same_v<S, T>) {
      if (stride == 1) return policy_.row(x, n, output);
    }
    alignas(64) T buffer[kBlock];
    Acc acc = Policy::identity();
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      load_block<S>(buffer, x + i * stride, stride, m);
      Policy::merge(acc, policy_.row(buffer, m, output));
    }
    return acc;
  }

  void rows(std::vector<Acc>& result) const {
    const LoopPieces pieces(reduced_, kPiece);
    const std::int64_t parts = pieces.count();
    const std::int64_t group = parts > 1 ? 1 : std::max<std::int64_t>(1, kPiece / reduced_.numel);
    const std::int64_t groups = ceil_div(kept_.numel, group);
    std::vector<Acc> partial(static_cast<std::size_t>(parts > 1 ? kept_.numel * parts : 0));
    parallel_for(groups * parts, threads(), [&](std::int64_t job) {
      const std::int64_t first = job / parts * group;
      for (std::int64_t output = first; output < std::min(kept_.numel, first + group); ++output) {
        const S* x = x_ + kept_offset(output);
        Acc acc = Policy::identity();
        pieces.run(job % parts,
                   [&](const Offsets& at, std::int64_t n) { Policy::merge(acc, row(x + at[0], n, output)); });
        (parts > 1 ? partial[static_cast<std::size_t>(job)] : result[static_cast<std::size_t>(output)]) = acc;
      }
    });
    for (std::int64_t i = 0; i < std::ssize(partial); ++i)
      Policy::merge(result[static_cast<std::size_t>(i / parts)], partial[static_cast<std::size_t>(i)]);
  }

  // Strips of outputs that are neighbours in memory; the runs of the reduced loop are rows of the strip.
  void columns(std::vector<Acc>& result) const {
    const std::int64_t inner = kept_.inner_size();
    const std::int64_t strip = std::min(inner, kColumns);
    const std::int64_t strips = ceil_div(inner, strip);
    const std::int64_t outer = kept_.numel / inner;
    const LoopPieces pieces(reduced_, std::max<std::int64_t>(64, kPiece / strip));
    const std::int64_t parts = pieces.count();
    std::vector<Acc> partial(static_cast<std::size_t>(parts > 1 ? parts * kept_.numel : 0),
                             Policy::identity());
    parallel_for(outer * strips * parts, threads(), [&](std::int64_t job) {
      const std::int64_t part = job % parts;
      const std::int64_t column = job / parts % strips * strip;
      const std::int64_t output = job / parts / strips * inner + column;
      const std::int64_t n = std::min(strip, inner - column);
      Acc* acc = (parts > 1 ? partial.data() + part * kept_.numel : result.data()) + output;
      const S* x = x_ + kept_offset(output);
      pieces.run(part,
                 [&](const Offsets& at, std::int64_t rows) { strip_rows(acc, x + at[0], rows, n, output); });
    });
    for (std::int64_t i = 0; i < std::ssize(partial); ++i)
      Policy::merge(result[static_cast<std::size_t>(i % kept_.numel)], partial[static_cast<std::size_t>(i)]);
  }

  void strip_rows(Acc* acc, const S* x, std::int64_t rows, std::int64_t n, std::int64_t output) const {
    const std::int64_t stride = reduced_.inner_stride(0);
    if constexpr (std::is_same_v<S, T>) {
      policy_.columns(acc, x, rows, stride, n, output);
    } else {
      alignas(64) T buffer[8 * kColumns];
      for (std::int64_t r = 0; r < rows; r += 8) {
        const std::int64_t m = std::min<std::int64_t>(8, rows - r);
        for (std::int64_t i = 0; i < m; ++i) load_block<S>(buffer + i * n, x + (r + i) * stride, 1, n);
        policy_.columns(acc, buffer, m, n, n, output);
      }
    }
  }

  const S* x_;
  const StridedLoop& kept_;
  const StridedLoop& reduced_;
  const Policy& policy_;
};

template <class S, class Policy>
auto reduced(const Array& x, const ReduceLoops& loops, const Policy& policy) {
  return Reducer<S, Policy>(x.data<S>(), loops, policy)();
}

template <class S, class Acc>
void write(const Array& out, const ReduceLoops& loops, const std::vector<Acc>& values) {
  S* p = out.data<S>();
  std::size_t i = 0;
  const std::int64_t stride = loops.kept.numel == 0 ? 1 : loops.kept.inner_stride(1);
  for_each_run(loops.kept, 1, std::numeric_limits<std::int64_t>::max(),
               [&](const Offsets& at, std::int64_t n) {
                 for (std::int64_t j = 0; j < n; ++j)
                   p[at[1] + j * stride] = static_cast<S>(static_cast<Compute<S>>(values[i++]));
               });
}

template <class S>
void reduce_floating(const ReduceArgs& args, const ReduceLoops& loops) {
  using T = Compute<S>;
  const auto run = [&](const auto& policy) { write<S>(args.out, loops, reduced<S>(args.x, loops, policy)); };
  switch (args.kind) {
    case ReduceKind::Sum:
      return run(SumPolicy<T>{});
    case ReduceKind::Max:
      return run(ExtremePolicy<T, true>{});
    case ReduceKind::Min:
      return run(ExtremePolicy<T, false>{});
    case ReduceKind::Product:
      return run(ProductPolicy<T>{});
  }
}

template <class S, class A>
void moments_typed(const MomentsArgs& args, const ReduceLoops& loops) {
  using T = Compute<S>;
  std::vector<double> mean = reduced<S>(args.x, loops, SumPolicy<T>{});
  const double n = static_cast<double>(std::max<std::int64_t>(loops.reduced.numel, 1));
  for (double& m : mean) m /= n;
  const SquaresPolicy<T> squares{mean.data()};
  write<A>(args.m2, loops, reduced<S>(args.x, loops, squares));
  const ReduceLoops mean_loops = reduce_loops("moments", args.mean, args.x);
  write<A>(args.mean, mean_loops, mean);
}

}  // namespace

ReduceLoops reduce_loops(const char* op, const Array& out, const Array& x) {
  TS_CHECK(out.dim() == x.dim(), op, "output of {} dims for an input of {} dims; they must be equal",
           out.dim(), x.dim());
  Dims kept_sizes, kept_x, kept_out, reduced_sizes, reduced_x;
  for (int d = 0; d < x.dim(); ++d) {
    if (out.size(d) == x.size(d)) {
      kept_sizes.push_back(x.size(d));
      kept_x.push_back(x.stride(d));
      kept_out.push_back(out.stride(d));
      continue;
    }
    TS_CHECK(out.size(d) == 1, op, "output of sizes {} for an input of sizes {}; a dim is kept or has size 1",
             out.sizes().str(), x.sizes().str());
    reduced_sizes.push_back(x.size(d));
    reduced_x.push_back(x.stride(d));
  }
  return {make_loop(kept_sizes, {&kept_x, &kept_out}), make_loop(reduced_sizes, {&reduced_x})};
}

void reduce(const ReduceArgs& args) {
  const ReduceLoops loops = reduce_loops("reduce", args.out, args.x);
  if (!is_floating(args.x.dtype())) return reduce_integer(args, loops);
  TS_CHECK(args.out.dtype() == args.x.dtype(), "reduce", "output of type {} for an input of type {}",
           name_of(args.out.dtype()), name_of(args.x.dtype()));
  dispatch_floating(args.x.dtype(),
                    [&](auto tag) { reduce_floating<typename decltype(tag)::type>(args, loops); });
}

void moments(const MomentsArgs& args) {
  TS_CHECK(is_floating(args.x.dtype()), "moments", "input of type {}; a floating type is needed",
           name_of(args.x.dtype()));
  const DType wanted = args.x.dtype() == DType::F64 ? DType::F64 : DType::F32;
  TS_CHECK(args.mean.dtype() == wanted && args.m2.dtype() == wanted, "moments",
           "results of types {} and {}; {} is needed", name_of(args.mean.dtype()), name_of(args.m2.dtype()),
           name_of(wanted));
  const ReduceLoops loops = reduce_loops("moments", args.m2, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    moments_typed<S, Compute<S>>(args, loops);
  });
}

}  // namespace tessera::cpu
