// What the forward and backward drivers of attention share: heads, positions, masks and padded rows.
#pragma once
#include <vector>

#include "ops/cpu/attention.h"
#include "ops/cpu/block_io.h"
#include "ops/cpu/parallel.h"
#include "ops/cpu/workspace.h"

namespace tessera::cpu {

struct AttentionSizes {
  std::int64_t batch = 0, heads = 0, key_heads = 0;
  std::int64_t rows = 0, keys = 0;
  std::int64_t d = 0, dv = 0;
  std::int64_t group() const { return heads / key_heads; }
};
// Checks q, k, v (and the mask) against each other; refuses with the sizes.
AttentionSizes attention_sizes(const char* op, const Array& q, const Array& k, const Array& v,
                               const AttentionMask& mask);
// Refuses x unless it is [batch, heads, rows] (and `last` numbers per row, stride 1, if last > 0) of this
// type.
void check_rows_of(const char* op, const Array& x, const AttentionSizes& s, std::int64_t last, DType dtype);
DType accumulator_of(DType t);
// What each function refuses, for every device.
AttentionSizes check_accumulate(const AttentionArgs& args);
AttentionSizes check_forward(const AttentionForwardArgs& args);
void check_finish(const AttentionFinishArgs& args);
void check_delta(const Array& delta, const Array& dout, const Array& out);
AttentionSizes check_backward(const AttentionBackwardArgs& args);
// Zeros where the first gradients are added.
void begin_sums(const AttentionBackwardArgs& args);
// Where it is not there yet.
void make_delta(const AttentionBackwardArgs& args, decltype(&attention_delta) make);

// Positions as arrays, where the caller left them out and the mask is causal.
class Positions {
 public:
  Positions(const AttentionMask& mask, const AttentionSizes& sizes);
  const std::int64_t* q = nullptr;
  const std::int64_t* k = nullptr;

 private:
  std::vector<std::int64_t> counted_;
};

// Smallest and largest position of a range, to tell whether a block needs the causal test at all.
struct PositionRange {
  std::int64_t lo = 0;
  std::int64_t hi = 0;
};
PositionRange position_range(const std::int64_t* positions, std::int64_t first, std::int64_t n);
enum class Visibility { All, Some, None };
Visibility visibility(PositionRange q, PositionRange k);

// The mask of head (n, h) from row q0 and key k0 on; positions are filled in when `causal_test`.
AttentionBlockMask block_mask(const Array& mask, std::int64_t n, std::int64_t h, std::int64_t q0,
                              std::int64_t k0);

template <class S>
const S* head(const Array& a, std::int64_t n, std::int64_t h, std::int64_t row = 0) {
  return a.data<S>() + n * a.stride(0) + h * a.stride(1) + row * a.stride(2);
}
template <class S>
S* mutable_head(const Array& a, std::int64_t n, std::int64_t h, std::int64_t row = 0) {
  return a.data<S>() + n * a.stride(0) + h * a.stride(1) + row * a.stride(2);
}

// Rows of numbers in the computing type with zeros up to `padded` columns.
template <class T>
struct RowsView {
  const T* data;
  std::int64_t row;
};
// As they lie if they already are so; else copied (and scaled) into out.
template <class S>
RowsView<Compute<S>> padded_rows(const S* x, std::int64_t row, std::int64_t rows, std::int64_t n,
                                 std::int64_t padded, Compute<S>* out) {
  if constexpr (std::is_same_v<S, Compute<S>>) {
    if (n == padded) return {x, row};
  }
  for (std::int64_t i = 0; i < rows; ++i) {
    load_block<S>(out + i * padded, x + i * row, 1, n);
    for (std::int64_t j = n; j < padded; ++j) out[i * padded + j] = 0;
  }
  return {out, padded};
}
template <class S>
void scaled_rows(const S* x, std::int64_t row, std::int64_t rows, std::int64_t n, std::int64_t padded,
                 double scale, Compute<S>* out) {
  const auto factor = static_cast<Compute<S>>(scale);
  for (std::int64_t i = 0; i < rows; ++i) {
    Compute<S>* to = out + i * padded;
    const S* from = x + i * row;
    for (std::int64_t j = 0; j < n; ++j) to[j] = static_cast<Compute<S>>(from[j]) * factor;
    for (std::int64_t j = n; j < padded; ++j) to[j] = 0;
  }
}

}  // namespace tessera::cpu
