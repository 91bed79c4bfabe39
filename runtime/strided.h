// Loops over two strided operands: the common ground of copies, conversions and sums.
//
// A plan drops dims of size 1, makes the written operand's strides positive, orders the loops so that it is
// written in memory order, and joins dims that are one run in both operands. What is left is a short nest of
// loops whose innermost one is as long as the layouts allow. Where the read operand is contiguous along
// another dim than the written one (a transpose), the last two loops go in tiles through a small buffer, so
// that both sides move whole cache lines.
#pragma once
#include <array>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "runtime/shape.h"
#include "runtime/threads.h"
#include "runtime/transpose_tile.h"

namespace tessera::detail {

struct StridedPlan {
  int n = 1;  // loops, outermost first; at least one
  std::array<std::int64_t, Dims::kMax> size{1};
  std::array<std::int64_t, Dims::kMax> to{};    // strides of the written operand, in elements, not negative
  std::array<std::int64_t, Dims::kMax> from{};  // strides of the read operand
  std::int64_t to_shift = 0;  // where the loops start, relative to element 0 of each operand
  std::int64_t from_shift = 0;
  // The read operand is contiguous along loop n - 2, the written one along n - 1.
  bool tiled = false;

  std::int64_t numel() const;
  std::int64_t outer(int inner_loops) const;  // iterations of all loops but the last `inner_loops`
};

StridedPlan plan_pair(const Dims& sizes, const Dims& to, const Dims& from);

// The outer loops of a plan, counted one by one from iteration `start`.
class Odometer {
 public:
  Odometer(const StridedPlan& plan, int loops, std::int64_t start) : plan_(plan), loops_(loops) {
    for (int d = loops - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      at_[i] = start % plan.size[i];
      start /= plan.size[i];
      to += at_[i] * plan.to[i];
      from += at_[i] * plan.from[i];
    }
  }
  void next() {
    for (int d = loops_ - 1; d >= 0; --d) {
      const auto i = static_cast<std::size_t>(d);
      to += plan_.to[i];
      from += plan_.from[i];
      if (++at_[i] < plan_.size[i]) return;
      to -= plan_.to[i] * plan_.size[i];
      from -= plan_.from[i] * plan_.size[i];
      at_[i] = 0;
    }
  }
  std::int64_t to = 0;
  std::int64_t from = 0;

 private:
  const StridedPlan& plan_;
  int loops_;
  std::array<std::int64_t, Dims::kMax> at_{};
};

// Rows are cut into pieces of this many elements when they are shared among threads.
constexpr std::int64_t kRowPiece = 16384;

// Calls row(to, from, n, to_stride, from_stride) for every row of the innermost loop (or piece of one).
template <class D, class S, class Row>
void walk_rows(const StridedPlan& plan, D* to, const S* from, Row row) {
  const auto last = static_cast<std::size_t>(plan.n - 1);
  const std::int64_t n = plan.size[last];
  const std::int64_t pieces = n >= kParallelElements ? (n + kRowPiece - 1) / kRowPiece : 1;
  const std::int64_t piece = pieces == 1 ? n : kRowPiece;
  const std::int64_t dt = plan.to[last];
  const std::int64_t df = plan.from[last];
  parallel_ranges(plan.outer(1) * pieces, plan.numel(), [&](std::int64_t lo, std::int64_t hi) {
    if (plan.n <= 2 && pieces == 1) {  // rows at one distance: no counting
      for (std::int64_t r = lo; r < hi; ++r) row(to + r * plan.to[0], from + r * plan.from[0], n, dt, df);
      return;
    }
    Odometer outer(plan, plan.n - 1, lo / pieces);
    std::int64_t part = lo % pieces;
    for (std::int64_t job = lo; job < hi; ++job) {
      const std::int64_t start = part * piece;
      row(to + outer.to + start * dt, from + outer.from + start * df, std::min(piece, n - start), dt, df);
      if (++part == pieces) {
        part = 0;
        outer.next();
      }
    }
  });
}

constexpr std::int64_t kTile = 32;

// A tile of the transpose: rows and columns as the target sees them.
template <class D, class S>
struct Tile {
  D* to;
  const S* from;
  std::int64_t rows;  // the source is contiguous along these
  std::int64_t columns;
  std::int64_t to_row;
  std::int64_t from_column;
};

// op(D& to, S from) for each element of a tile. Columns are read whole into the buffer (its pitch is odd so
// that its rows fall into different cache sets), rows of the target are written whole.
template <class D, class S, class Op>
void apply_tile(const Tile<D, S>& t, Op op) {
  constexpr std::int64_t kPitch = kTile + 1;
  S buffer[static_cast<std::size_t>(kTile * kPitch)];
  for (std::int64_t j = 0; j < t.columns; ++j)
    for (std::int64_t i = 0; i < t.rows; ++i) buffer[j * kPitch + i] = t.from[j * t.from_column + i];
  for (std::int64_t i = 0; i < t.rows; ++i)
    for (std::int64_t j = 0; j < t.columns; ++j) op(t.to[i * t.to_row + j], buffer[j * kPitch + i]);
}

// Plain copy of a tile of `rows` by `columns`, by registers as far as these reach: of 16 or 24 channels all.
template <class T>
void move_by_registers(const Tile<T, T>& t, std::int64_t rows, std::int64_t columns) {
  constexpr auto kSide = static_cast<std::int64_t>(RegisterTile<T>::kSide);
  constexpr std::int64_t kPitch = kTile + kSide;
  alignas(16) T buffer[static_cast<std::size_t>(kTile * kPitch)];
  for (std::int64_t j = 0; j < columns; ++j)
    std::memcpy(buffer + j * kPitch, t.from + j * t.from_column, static_cast<std::size_t>(rows) * sizeof(T));
  const std::int64_t whole_rows = rows / kSide * kSide;
  const std::int64_t whole_columns = columns / kSide * kSide;
  for (std::int64_t i = 0; i < whole_rows; i += kSide)
    for (std::int64_t j = 0; j < whole_columns; j += kSide)
      RegisterTile<T>::transpose(t.to + i * t.to_row + j, t.to_row, buffer + j * kPitch + i, kPitch);
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = i < whole_rows ? whole_columns : 0; j < columns; ++j)
      t.to[i * t.to_row + j] = buffer[j * kPitch + i];
}

// The operation of a plain copy; tiles know a faster way for it.
struct Assign {
  template <class T>
  void operator()(T& to, T from) const {
    to = from;
  }
};

template <class D, class S, class Op>
void move_tile(const Tile<D, S>& t, Op op) {
  if constexpr (std::is_same_v<Op, Assign>) {
    if (t.rows == kTile && t.columns == kTile) return move_by_registers(t, kTile, kTile);  // known sizes
    if (t.rows == kTile) return move_by_registers(t, kTile, t.columns);
    return move_by_registers(t, t.rows, t.columns);
  } else {
    apply_tile(t, op);
  }
}

// Tiled walk of a plan with `tiled`: op(D& to, S from) per element. Needs unit strides as the plan promises.
template <class D, class S, class Op>
void walk_tiles(const StridedPlan& plan, D* to, const S* from, Op op) {
  const auto r = static_cast<std::size_t>(plan.n - 2);
  const std::size_t c = r + 1;
  const std::int64_t rows = plan.size[r];
  const std::int64_t columns = plan.size[c];
  const std::int64_t bands = (rows + kTile - 1) / kTile;
  parallel_ranges(plan.outer(2) * bands, plan.numel(), [&](std::int64_t lo, std::int64_t hi) {
    Odometer outer(plan, plan.n - 2, lo / bands);
    std::int64_t band = lo % bands;
    for (std::int64_t job = lo; job < hi; ++job) {
      const std::int64_t i = band * kTile;
      for (std::int64_t j = 0; j < columns; j += kTile)
        move_tile(
            Tile<D, S>{to + outer.to + i * plan.to[r] + j, from + outer.from + i + j * plan.from[c],
                       std::min(kTile, rows - i), std::min(kTile, columns - j), plan.to[r], plan.from[c]},
            op);
      if (++band == bands) {
        band = 0;
        outer.next();
      }
    }
  });
}

}  // namespace tessera::detail
