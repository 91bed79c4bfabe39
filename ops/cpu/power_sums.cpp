#include "ops/cpu/power_sums.h"

#include <array>
#include <cmath>

#include "ops/cpu/reducer.h"
#include "runtime/error.h"

namespace tessera::cpu {
namespace {

template <class T, class F>
struct MappedSumPolicy {
  using Acc = double;
  static Acc identity() { return 0.0; }
  static void merge(Acc& a, Acc b) { a += b; }
  Acc row(const T* x, std::int64_t n, std::int64_t) const {
    Acc sum = 0.0;
    for (std::int64_t i = 0; i < n; ++i) sum += f(static_cast<double>(x[i]));
    return sum;
  }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    for (std::int64_t r = 0; r < rows; ++r)
      for (std::int64_t j = 0; j < n; ++j) acc[j] += f(static_cast<double>(x[r * stride + j]));
  }
  F f;
};

constexpr std::array<double, kReduceColumns> kNoCentre{};

template <class T>
struct SquaredSumPolicy {
  using Acc = double;
  static Acc identity() { return 0.0; }
  static void merge(Acc& a, Acc b) { a += b; }
  Acc row(const T* x, std::int64_t n, std::int64_t) const { return kernels.squares(x, n, 0.0); }
  void columns(Acc* acc, const T* x, std::int64_t rows, std::int64_t stride, std::int64_t n,
               std::int64_t) const {
    kernels.add_square_columns(acc, kNoCentre.data(), x, rows, stride, n);
  }
  const ReduceBlocks<T>& kernels = blocks_of<T>(reduce_table());
};

}  // namespace

void power_sums(const PowerSumsArgs& args) {
  TS_CHECK(args.out.dtype() == DType::F64 && is_floating(args.x.dtype()), "power_sums",
           "output of type {} for an input of type {}; f64 and a floating type are needed",
           name_of(args.out.dtype()), name_of(args.x.dtype()));
  const ReduceLoops loops = reduce_loops("power_sums", args.out, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    using T = Compute<S>;
    const auto run = [&](const auto& policy) {
      write_reduced<double>(args.out, loops, reduce_with<S>(args.x, loops, policy));
    };
    if (args.power == 2.0) return run(SquaredSumPolicy<T>{});
    const auto raised = [p = args.power](double v) { return std::pow(std::abs(v), p); };
    run(MappedSumPolicy<T, decltype(raised)>{raised});
  });
}

}  // namespace tessera::cpu
