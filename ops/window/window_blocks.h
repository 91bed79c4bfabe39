// Windows along a contiguous dim, made ready for vector kernels (see WindowLine). Knows nothing above
// runtime/.
#pragma once
#include "ops/cpu/simd/window_table.h"
#include "ops/window/sparse_rows.h"

namespace tessera::cpu {

enum class WindowSum : std::uint8_t { Weighted, Largest };

template <class T>
class BlockedWindows {
 public:
  BlockedWindows() = default;
  // For `lines` lines of `columns` inputs each. None are made where that takes longer than it saves, where a
  // line has fewer outputs than a vector, or where the outputs' windows differ much in size.
  BlockedWindows(const SparseRows& rows, std::int64_t columns, std::int64_t lines, WindowSum kind);

  bool empty() const { return output_.empty(); }
  std::int64_t blocks() const { return static_cast<std::int64_t>(output_.size()); }
  WindowLine<T> line() const {
    return {output_.data(), from_.data(), order_.data(), weight_.data(), place_.data(),
            taps_,          vectors_,     ragged_,       even_.lo,       even_.hi};
  }

 private:
  // What one tap of a block reads: the first and the last place.
  struct Reach {
    std::int64_t lo = 0, hi = 0;
  };
  std::int64_t place_of(const SparseRows& rows, std::int64_t output, std::int64_t tap) const;
  Reach reach_of(const SparseRows& rows, std::int64_t output, std::int64_t tap) const;
  bool worth_it(const SparseRows& rows, std::int64_t columns, std::int64_t lines);
  void choose_vectors(const SparseRows& rows, std::int64_t columns);
  void add_tap(const SparseRows& rows, std::int64_t columns, std::int64_t output, std::int64_t tap);
  void add_lane(std::int64_t place, std::int64_t from);
  void find_even();

  std::vector<std::int64_t> output_;
  std::vector<std::int64_t> from_;
  std::vector<std::int32_t> order_;
  std::vector<T> weight_;
  std::vector<typename WindowLine<T>::Place> place_;
  std::int64_t lanes_ = 0;
  std::int64_t taps_ = 0;
  std::int64_t vectors_ = 0;
  bool ragged_ = false;
  Reach even_;  // blocks [lo, hi) of them
  WindowSum kind_ = WindowSum::Weighted;
};

extern template class BlockedWindows<float>;
extern template class BlockedWindows<double>;

}  // namespace tessera::cpu
