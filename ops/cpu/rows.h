// Rows along one dim of strided arrays, handed to row kernels as contiguous numbers.
#pragma once
#include "ops/cpu/block_io.h"
#include "runtime/array.h"

namespace tessera::cpu {

// f32, f64 rows with stride 1 are used as they lie; others are copied through `buffer` (n numbers).
template <class S>
const Compute<S>* row_in(const S* x, std::int64_t stride, std::int64_t n, Compute<S>* buffer) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (stride == 1) return x;
  }
  load_block<S>(buffer, x, stride, n);
  return buffer;
}
template <class S>
Compute<S>* row_out(S* x, std::int64_t stride, Compute<S>* buffer) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (stride == 1) return x;
  }
  return buffer;
}
template <class S>
void row_done(S* x, std::int64_t stride, std::int64_t n, const Compute<S>* row) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (row == x) return;
  }
  store_block<S>(x, stride, row, n);
}

inline constexpr std::int64_t kRowBlock = 16;

// A few neighbouring rows of n numbers, `along` apart within a row and `between` from row to row. Where rows
// lie across memory, all of them are read at once, a cache line at a time.
template <class S>
class RowsBlock {
 public:
  using T = Compute<S>;
  struct Layout {
    std::int64_t along, between, rows, n;
  };
  // Rows in the buffer are a cache line further apart than n, so that they do not all fall on the same cache
  // set.
  static std::int64_t buffer_size(std::int64_t n) { return kRowBlock * (n + 16); }
  RowsBlock(S* x, const Layout& layout, T* buffer)
      : x_(x), l_(layout), pitch_(layout.n + 16), buffer_(buffer) {}

  T* row(std::int64_t r) const { return direct() ? as_computed() + r * l_.between : buffer_ + r * pitch_; }
  void load() const {
    if (direct()) return;
    if (l_.between == 1 && l_.rows > 1) {
      for (std::int64_t i = 0; i < l_.n; ++i)
        for (std::int64_t r = 0; r < l_.rows; ++r)
          buffer_[r * pitch_ + i] = static_cast<T>(x_[i * l_.along + r]);
    } else {
      for (std::int64_t r = 0; r < l_.rows; ++r)
        load_block<S>(buffer_ + r * pitch_, x_ + r * l_.between, l_.along, l_.n);
    }
  }
  void store() const {
    if (direct()) return;
    if (l_.between == 1 && l_.rows > 1) {
      for (std::int64_t i = 0; i < l_.n; ++i)
        for (std::int64_t r = 0; r < l_.rows; ++r)
          x_[i * l_.along + r] = static_cast<S>(buffer_[r * pitch_ + i]);
    } else {
      for (std::int64_t r = 0; r < l_.rows; ++r)
        store_block<S>(x_ + r * l_.between, l_.along, buffer_ + r * pitch_, l_.n);
    }
  }

 private:
  bool direct() const { return std::is_same_v<S, T> && l_.along == 1; }
  T* as_computed() const { return reinterpret_cast<T*>(x_); }  // only where S is T
  S* x_;
  Layout l_;
  std::int64_t pitch_;
  T* buffer_;
};

}  // namespace tessera::cpu
