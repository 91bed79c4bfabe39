#include "ops/cpu/reduce.h"

#include <cmath>
#include <functional>
#include <numeric>

#include "ops/cpu/reducer.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

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

// Sums of x - centre. In float64 it makes the mean of equal values exactly that value, so that their
// deviation is 0; the sums of the smaller types are exact to begin with.
template <class T>
struct DeviationPolicy {
  using Acc = double;
  static Acc identity() { return 0.0; }
  static void merge(Acc& a, Acc b) { a += b; }
  Acc row(const T* x, std::int64_t n, std::int64_t output) const {
    Acc sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]) - centre[output];
    return sum;
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t output) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j)
        acc[j] += static_cast<double>(x[r * stride + j]) - centre[output + j];
  }
  const double* centre;
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
  // Several products at once: one chain would wait for each multiplication.
  Acc row(const T* x, std::int64_t n, std::int64_t) const {
    constexpr std::int64_t kLanes = 16;
    Acc lanes[kLanes];
    std::fill(lanes, lanes + kLanes, identity());
    std::int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes)
      for (std::int64_t j = 0; j < kLanes; ++j) lanes[j] *= static_cast<double>(x[i + j]);
    for (; i < n; ++i) lanes[i % kLanes] *= static_cast<double>(x[i]);
    return std::accumulate(lanes, lanes + kLanes, identity(), std::multiplies<>());
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) acc[j] *= static_cast<double>(x[r * stride + j]);
  }
};

template <class S>
void reduce_floating(const ReduceArgs& args, const ReduceLoops& loops) {
  using T = Compute<S>;
  const auto run = [&](const auto& policy) {
    write_reduced<S>(args.out, loops, reduce_with<S>(args.x, loops, policy));
  };
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
  std::vector<double> mean = reduce_with<S>(args.x, loops, SumPolicy<T>{});
  const double n = static_cast<double>(std::max<std::int64_t>(loops.reduced.numel, 1));
  for (double& m : mean) m /= n;
  if constexpr (std::is_same_v<T, double>) {
    const std::vector<double> off = reduce_with<S>(args.x, loops, DeviationPolicy<T>{mean.data()});
    for (std::size_t i = 0; i < mean.size(); ++i)
      if (std::isfinite(mean[i])) mean[i] += off[i] / n;  // else nothing is off by a number
  }
  const SquaresPolicy<T> squares{mean.data()};
  write_reduced<A>(args.m2, loops, reduce_with<S>(args.x, loops, squares));
  const ReduceLoops mean_loops = reduce_loops("moments", args.mean, args.x);
  write_reduced<A>(args.mean, mean_loops, mean);
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
  const DType out = args.mean.dtype();
  TS_CHECK(
      args.m2.dtype() == out && (out == DType::F64 || (out == DType::F32 && args.x.dtype() != DType::F64)),
      "moments", "results of types {} and {} for an input of type {}; f64 is always allowed, f32 not of f64",
      name_of(out), name_of(args.m2.dtype()), name_of(args.x.dtype()));
  const ReduceLoops loops = reduce_loops("moments", args.m2, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    if (out == DType::F64) return moments_typed<S, double>(args, loops);
    moments_typed<S, Compute<S>>(args, loops);
  });
}

}  // namespace tessera::cpu
