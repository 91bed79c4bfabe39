// Loops over strided operands, simplified: the drivers' common ground.
#pragma once
#include <array>

#include "ops/cpu/parallel.h"
#include "runtime/array.h"

namespace tessera::cpu {

// Up to four operands walked together. Dims run from the outermost to the innermost; strides in elements.
struct StridedLoop {
  static constexpr int kOperands = 4;
  int dims = 0;
  int operands = 0;
  Dims sizes;
  std::array<Dims, kOperands> strides;
  std::int64_t numel = 0;

  std::int64_t inner_size() const { return sizes[dims - 1]; }
  std::int64_t inner_stride(int operand) const {
    return strides[static_cast<std::size_t>(operand)][dims - 1];
  }
};

// Orders dims by the first operand's strides (largest outside; ties keep their order), drops those of size 1
// and merges neighbours that lie in memory as one. At least one dim remains.
StridedLoop make_loop(const Dims& sizes, std::initializer_list<const Dims*> strides);

using Offsets = std::array<std::int64_t, StridedLoop::kOperands>;

namespace detail {

// Walks outer indices [first, last) of the loop without its innermost dim.
class OuterCounter {
 public:
  OuterCounter(const StridedLoop& loop, std::int64_t first);
  const Offsets& offsets() const { return offsets_; }
  void step();

 private:
  const StridedLoop& loop_;
  Dims index_;
  Offsets offsets_{};
};

}  // namespace detail

// A loop cut into pieces of about `piece` elements: long runs are split, short ones grouped. The cut depends
// on the loop alone.
class LoopPieces {
 public:
  LoopPieces(const StridedLoop& loop, std::int64_t piece);
  std::int64_t count() const { return count_; }

  // f(offsets, n) for the runs of piece p, in order: n elements along the innermost dim.
  template <class F>
  void run(std::int64_t p, const F& f) const {
    const std::int64_t inner = loop_.inner_size();
    if (cuts_ > 1) {
      const detail::OuterCounter at(loop_, p / cuts_);
      const std::int64_t lo = (p % cuts_) * piece_;
      Offsets offsets = at.offsets();
      for (int k = 0; k < loop_.operands; ++k)
        offsets[static_cast<std::size_t>(k)] += lo * loop_.inner_stride(k);
      f(offsets, std::min(piece_, inner - lo));
      return;
    }
    const std::int64_t first = p * group_;
    const std::int64_t last = std::min(outer_, first + group_);
    detail::OuterCounter at(loop_, first);
    for (std::int64_t i = first; i < last; ++i, at.step()) f(at.offsets(), inner);
  }

 private:
  const StridedLoop& loop_;
  std::int64_t piece_;
  std::int64_t outer_ = 0;
  std::int64_t cuts_ = 1;   // pieces of one run
  std::int64_t group_ = 1;  // runs of one piece
  std::int64_t count_ = 0;
};

// f(offsets, n) for all runs of the loop; pieces may be on different threads.
template <class F>
void for_each_run(const StridedLoop& loop, int threads, std::int64_t piece, const F& f) {
  const LoopPieces pieces(loop, piece);
  if (pieces.count() == 1) return pieces.run(0, f);
  parallel_for(pieces.count(), threads, [&](std::int64_t p) { pieces.run(p, f); });
}

}  // namespace tessera::cpu
