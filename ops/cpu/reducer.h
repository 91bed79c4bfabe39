// The loop that every floating reduction is: a policy says what becomes of contiguous numbers.
//
// A policy has an accumulator type Acc, identity(), merge(a, b), and takes up contiguous numbers: row() folds
// n of them into one accumulator, columns() folds rows of n neighbours into n accumulators. The work is cut
// into pieces of a fixed size, never by the number of threads, and the pieces are combined in order.
#pragma once
#include <limits>
#include <vector>

#include "ops/cpu/block_io.h"
#include "ops/cpu/loops.h"
#include "ops/cpu/reduce_integer.h"

namespace tessera::cpu {

inline constexpr std::int64_t kReducePiece = 32768;  // elements that one piece reads
inline constexpr std::int64_t kReduceColumns = 512;  // accumulators of one strip: 4 KiB of doubles

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
    const LoopPieces pieces(reduced_, kReducePiece);
    const std::int64_t parts = pieces.count();
    const std::int64_t group = parts > 1 ? 1 : std::max<std::int64_t>(1, kReducePiece / reduced_.numel);
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
    const std::int64_t strip = std::min(inner, kReduceColumns);
    const std::int64_t strips = ceil_div(inner, strip);
    const std::int64_t outer = kept_.numel / inner;
    const LoopPieces pieces(reduced_, std::max<std::int64_t>(64, kReducePiece / strip));
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
      alignas(64) T buffer[8 * kReduceColumns];
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
auto reduce_with(const Array& x, const ReduceLoops& loops, const Policy& policy) {
  return Reducer<S, Policy>(x.data<S>(), loops, policy)();
}

template <class S, class Acc>
void write_reduced(const Array& out, const ReduceLoops& loops, const std::vector<Acc>& values) {
  S* p = out.data<S>();
  std::size_t i = 0;
  const std::int64_t stride = loops.kept.numel == 0 ? 1 : loops.kept.inner_stride(1);
  for_each_run(loops.kept, 1, std::numeric_limits<std::int64_t>::max(),
               [&](const Offsets& at, std::int64_t n) {
                 for (std::int64_t j = 0; j < n; ++j)
                   p[at[1] + j * stride] = static_cast<S>(static_cast<Compute<S>>(values[i++]));
               });
}

}  // namespace tessera::cpu
