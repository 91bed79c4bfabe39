#include "ops/cpu/pair_loss.h"

#include <atomic>
#include <optional>
#include <vector>

#include "ops/cpu/block_io.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/simd/loss_table.h"
#include "runtime/error.h"

namespace tessera::cpu {

namespace {

constexpr std::int64_t kPiece = 32768;

void check_like(const char* op, const Array& a, const Array& x) {
  TS_CHECK(a.sizes() == x.sizes() && a.dtype() == x.dtype() && is_floating(x.dtype()), op,
           "operands {} {} and {} {}; one floating type and equal sizes are needed", name_of(a.dtype()),
           a.sizes().str(), name_of(x.dtype()), x.sizes().str());
}

template <class T>
auto function_of(const PairLossArgs& args) {
  const auto at =
      static_cast<int>(args.kind.loss) * static_cast<int>(PairPart::kCount) + static_cast<int>(args.part);
  return blocks_of<T>(loss_table()).pair[at];
}

// Reads x, target and (where defined) positive of a run, block by block. `at`: their offsets.
template <class S>
class PairReader {
 public:
  using T = Compute<S>;
  PairReader(const PairLossArgs& args, const StridedLoop& loop, const Offsets& at, int first)
      : x_(args.x.data<S>() + offset(at, first), loop.inner_stride(first)),
        t_(args.target.data<S>() + offset(at, first + 1), loop.inner_stride(first + 1)) {
    if (args.positive.defined())
      p_.emplace(args.positive.data<S>() + offset(at, first + 2), loop.inner_stride(first + 2));
  }
  struct Block {
    const T *x, *t, *p;
  };
  Block read(std::int64_t i, std::int64_t n) {
    return {x_.read(i, n), t_.read(i, n), p_ ? p_->read(i, n) : nullptr};
  }

 private:
  static std::int64_t offset(const Offsets& at, int k) { return at[static_cast<std::size_t>(k)]; }
  BlockReader<S> x_, t_;
  std::optional<BlockReader<S>> p_;
};

double work_of(const PairLossArgs& args, const StridedLoop& loop) {
  return static_cast<double>(loop.numel) * (args.kind.loss < PairLoss::Entropy ? 2.0 : 20.0);
}

template <class S>
void map(const PairLossArgs& args) {
  using T = Compute<S>;
  const Array& p = args.positive.defined() ? args.positive : args.x;
  const StridedLoop loop = make_loop(
      args.out.sizes(), {&args.out.strides(), &args.x.strides(), &args.target.strides(), &p.strides()});
  const auto f = function_of<T>(args);
  const double factor =
      args.factor.defined() ? static_cast<double>(static_cast<T>(*args.factor.data<S>())) : 1.0;
  const auto alpha = static_cast<T>(args.kind.alpha);
  const auto scale = static_cast<T>(args.scale * factor);
  for_each_run(loop, threads_for(work_of(args, loop)), kPiece, [&](const Offsets& at, std::int64_t n) {
    PairReader<S> reader(args, loop, at, 1);
    BlockWriter<S> writer(args.out.data<S>() + at[0], loop.inner_stride(0));
    for (std::int64_t i = 0; i < n; i += kBlock) {
      const std::int64_t m = std::min(kBlock, n - i);
      const auto b = reader.read(i, m);
      f(writer.place(i), b.x, b.t, b.p, m, alpha, scale);
      writer.write(i, m);
    }
  });
}

template <class S>
void sum(const PairLossArgs& args) {
  using T = Compute<S>;
  const Array& p = args.positive.defined() ? args.positive : args.x;
  const StridedLoop loop =
      make_loop(args.x.sizes(), {&args.x.strides(), &args.target.strides(), &p.strides()});
  const auto f = function_of<T>(args);
  const auto add = blocks_of<T>(reduce_table()).sum;
  const auto alpha = static_cast<T>(args.kind.alpha);
  const LoopPieces pieces(loop, kPiece);
  std::vector<double> partial(static_cast<std::size_t>(pieces.count()), 0.0);
  const auto piece = [&](std::int64_t i) {
    pieces.run(i, [&](const Offsets& at, std::int64_t n) {
      PairReader<S> reader(args, loop, at, 0);
      alignas(64) T buffer[kBlock];
      for (std::int64_t k = 0; k < n; k += kBlock) {
        const std::int64_t m = std::min(kBlock, n - k);
        const auto b = reader.read(k, m);
        f(buffer, b.x, b.t, b.p, m, alpha, T(1));
        partial[static_cast<std::size_t>(i)] += add(buffer, m);
      }
    });
  };
  if (loop.numel > 0) parallel_for(pieces.count(), threads_for(work_of(args, loop)), piece);
  double total = 0;
  for (const double v : partial) total += v;
  *args.out.data<S>() = static_cast<S>(static_cast<T>(total * args.scale));
}

void check(const char* op, const PairLossArgs& args) {
  check_like(op, args.target, args.x);
  if (args.positive.defined()) check_like(op, args.positive, args.x);
}

// Whether all are in [0, 1].
template <class S>
bool in_unit_range(const Array& x) {
  const StridedLoop loop = make_loop(x.sizes(), {&x.strides()});
  const LoopPieces pieces(loop, kPiece);
  std::atomic<bool> good{true};
  const std::int64_t stride = loop.inner_stride(0);
  const auto all_of = [](const S* p, std::int64_t n, std::int64_t step) {
    int others = 0;
    for (std::int64_t k = 0; k < n; ++k) {
      const auto v = static_cast<Compute<S>>(p[k * step]);
      others |= v >= 0 && v <= 1 ? 0 : 1;
    }
    return others == 0;
  };
  const auto piece = [&](std::int64_t i) {
    pieces.run(i, [&](const Offsets& at, std::int64_t n) {
      const S* p = x.data<S>() + at[0];
      // With a constant step the loop is vector code.
      if (!(stride == 1 ? all_of(p, n, 1) : all_of(p, n, stride)))
        good.store(false, std::memory_order_relaxed);
    });
  };
  if (loop.numel > 0) parallel_for(pieces.count(), threads_for(static_cast<double>(loop.numel)), piece);
  return good.load(std::memory_order_relaxed);
}

}  // namespace

void pair_loss(const PairLossArgs& args) {
  const char* op = "pair_loss";
  check_like(op, args.out, args.x);
  check(op, args);
  TS_CHECK(!args.factor.defined() || (args.factor.numel() == 1 && args.factor.dtype() == args.x.dtype()), op,
           "a factor of one element of x's type is needed");
  dispatch_floating(args.x.dtype(), [&](auto tag) { map<typename decltype(tag)::type>(args); });
}

void pair_loss_sum(const PairLossArgs& args) {
  const char* op = "pair_loss_sum";
  check(op, args);
  TS_CHECK(args.out.numel() == 1 && args.out.dtype() == args.x.dtype() && args.part == PairPart::Value, op,
           "one element of x's type is needed for the sum of values");
  dispatch_floating(args.x.dtype(), [&](auto tag) { sum<typename decltype(tag)::type>(args); });
}

void unit_range(const UnitRangeArgs& args) {
  check_like("unit_range", args.target, args.x);
  dispatch_floating(args.x.dtype(), [&](auto tag) {
    using S = typename decltype(tag)::type;
    *args.fault.data<double>() = !in_unit_range<S>(args.x) ? 1.0 : !in_unit_range<S>(args.target) ? 2.0 : 0.0;
  });
}

}  // namespace tessera::cpu
