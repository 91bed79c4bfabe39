// Attention of a block of query rows with a block of keys; see ops/cpu/attention.h for the method.
#include "ops/cpu/simd/exp.h"
#include "ops/cpu/simd/half.h"
#include "ops/cpu/simd/tables.h"
#include "ops/cpu/simd/tile.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

inline i64 vectors_for(i64 n, i64 width) { return (n + width - 1) / width; }

// A square of kWidth rows, of which `have` exist, transposed into rows kPanel apart. Weaving the two halves
// of the list of rows log2(kWidth) times moves row i, lane j to row j, lane i.
template <class T>
inline void transpose_square(T* out, const T* x, i64 row, i64 have) {
  constexpr int n = kWidth<T>;
  Vector<T> r[n];
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) r[i] = i < have ? load(x + i * row) : Vector<T>{};
#pragma GCC unroll 4
  for (int step = 1; step < n; step *= 2) {
    Vector<T> t[n];
#pragma GCC unroll 8
    for (int i = 0; i < n / 2; ++i) {
      t[2 * i] = woven<false, T>(r[i], r[i + n / 2]);
      t[2 * i + 1] = woven<true, T>(r[i], r[i + n / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < n; ++i) r[i] = t[i];
  }
#pragma GCC unroll 16
  for (int i = 0; i < n; ++i) store(out + i * kPanel<T>, r[i]);
}

// Keys j0 to j0 + kWidth of a panel. The last square overlaps the one before, so as not to read past a row's
// end.
template <class T>
void pack_strip(T* out, const T* x, i64 row, i64 have, i64 d) {
  if (d < kWidth<T>) {
    for (i64 p = 0; p < d; ++p)
      for (i64 j = 0; j < kWidth<T>; ++j) out[p * kPanel<T> + j] = j < have ? x[j * row + p] : T(0);
    return;
  }
  for (i64 p = 0; p < d; p += kWidth<T>) {
    const i64 at = p + kWidth<T> <= d ? p : d - kWidth<T>;
    transpose_square(out + at * kPanel<T>, x + at, row, have);
  }
}

template <class T>
void pack(T* out, const T* x, i64 row, i64 keys, i64 d) {
  for (i64 j = 0; j < keys; j += kWidth<T>) {
    const i64 panel = j / kPanel<T>;
    const i64 have = keys - j < kWidth<T> ? keys - j : kWidth<T>;
    pack_strip<T>(out + panel * kPanel<T> * d + j % kPanel<T>, x + j * row, row, have, d);
  }
}

// scores = a packed^T, a: [rows][depth].
template <class T>
void multiply_panels(T* scores, const T* a, i64 a_row, const T* packed, i64 rows, i64 keys, i64 depth) {
  for (i64 j = 0; j < keys; j += kPanel<T>) {
    const i64 left = vectors_for(keys - j, kWidth<T>);
    multiply_tiles<T, false>(
        {scores + j, kAttentionScoreRow, a, a_row, 1, packed + j * depth, kPanel<T>, depth}, rows,
        left < kVectors ? left : kVectors);
  }
}

template <class T>
constexpr T kMinusInf = -static_cast<T>(__builtin_inf());

// -inf where the row must not see the key, and the additive mask.
template <class T>
void apply_mask(T* scores, const AttentionBlockMask& mask, i64 row, i64 keys) {
  const i64 col = mask.col;
  if (mask.kind == AttentionBlockMask::Keep) {
    const auto* keep = static_cast<const std::uint8_t*>(mask.data) + row * mask.row;
    for (i64 j = 0; j < keys; ++j) scores[j] = keep[j * col] != 0 ? scores[j] : kMinusInf<T>;
  } else if (mask.kind == AttentionBlockMask::AddSame) {
    const T* add = static_cast<const T*>(mask.data) + row * mask.row;
    for (i64 j = 0; j < keys; ++j) scores[j] += add[j * col];
  } else if (mask.kind == AttentionBlockMask::AddBf16) {
    const auto* add = static_cast<const std::uint16_t*>(mask.data) + row * mask.row;
    for (i64 j = 0; j < keys; ++j) scores[j] += static_cast<T>(from_bf16(add[j * col]));
  } else if (mask.kind == AttentionBlockMask::AddF16) {
    const auto* add = static_cast<const std::uint16_t*>(mask.data) + row * mask.row;
    for (i64 j = 0; j < keys; ++j) scores[j] += static_cast<T>(from_f16(add[j * col]));
  }
  if (mask.q_positions != nullptr) {
    const i64 limit = mask.q_positions[row];
    const i64* at = mask.k_positions;
    for (i64 j = 0; j < keys; ++j) scores[j] = at[j] <= limit ? scores[j] : kMinusInf<T>;
  }
}

// What the new scores change in a row's state: exp(score - shift) are the weights, factor rescales what was
// there.
template <class T>
struct RowUpdate {
  T max;
  T shift;
  T factor;
};

template <class T>
RowUpdate<T> update_of(const T* scores, T before, i64 vectors) {
  Vector<T> most = load(scores);
  for (i64 v = 1; v < vectors; ++v) {
    const Vector<T> x = load(scores + v * kWidth<T>);
    most = x > most ? x : most;
  }
  const T here = max_of<T>(most);
  const T m = here > before ? here : before;
  const T shift = m == kMinusInf<T> ? T(0) : m;
  return {m, shift, exp_vector(Vector<T>{} + (before - shift))[0]};
}

template <class T>
T weights_of(T* scores, T shift, i64 vectors) {
  Vector<T> even = {};
  Vector<T> odd = {};
  i64 v = 0;
  for (; v + 2 <= vectors; v += 2) {
    T* s = scores + v * kWidth<T>;
    const Vector<T> p0 = exp_vector(load(s) - shift);
    const Vector<T> p1 = exp_vector(load(s + kWidth<T>) - shift);
    store(s, p0);
    store(s + kWidth<T>, p1);
    even += p0;
    odd += p1;
  }
  if (v < vectors) {
    const Vector<T> p = exp_vector(load(scores + v * kWidth<T>) - shift);
    store(scores + v * kWidth<T>, p);
    even += p;
  }
  return sum_of<T>(even + odd);
}

// Scores of some rows to weights; brings row_max, row_sum and o up to date. One step at a time for all rows,
// because the steps of a single row wait for each other.
constexpr i64 kGroup = 16;
template <class T>
void softmax_rows(const AttentionForwardBlock<T>& b, i64 first, i64 rows, i64 vectors) {
  RowUpdate<T> update[kGroup];
  T* scores = b.scores + first * kAttentionScoreRow;
  for (i64 i = 0; i < rows; ++i)
    update[i] = update_of(scores + i * kAttentionScoreRow, b.row_max[first + i], vectors);
  for (i64 i = 0; i < rows; ++i) {
    const T sum = weights_of(scores + i * kAttentionScoreRow, update[i].shift, vectors);
    b.row_sum[first + i] = b.row_sum[first + i] * update[i].factor + sum;
    b.row_max[first + i] = update[i].max;
  }
  for (i64 i = 0; i < rows; ++i) {
    if (update[i].factor == T(1)) continue;
    T* o = b.o + (first + i) * b.o_row;
    for (i64 j = 0; j < b.dv_padded; j += kWidth<T>) store(o + j, load(o + j) * update[i].factor);
  }
}

// Of all rows of a block.
template <class T>
void drop(T* x, const AttentionBlockDropout<T>& dropout, i64 rows, i64 keys) {
  const std::uint32_t limit = dropout.limit;
  const T factor = dropout.factor;
  for (i64 i = 0; i < rows; ++i) {
    T* row = x + i * kAttentionScoreRow;
    const std::uint32_t* words = dropout.words + i * kAttentionKeys;
    for (i64 j = 0; j < keys; ++j) {
      const T kept = row[j] * factor;
      row[j] = words[j] >= limit ? kept : T(0);
    }
  }
}

template <class T>
void forward(const AttentionForwardBlock<T>& b) {
  multiply_panels<T>(b.scores, b.q, b.q_row, b.k_packed, b.rows, b.keys, b.d);
  const i64 vectors = vectors_for(b.keys, kWidth<T>);
  const i64 filled = vectors * kWidth<T>;
  const bool masked = b.mask.kind != AttentionBlockMask::None || b.mask.q_positions != nullptr;
  for (i64 first = 0; first < b.rows; first += kGroup) {
    const i64 rows = b.rows - first < kGroup ? b.rows - first : kGroup;
    for (i64 i = first; masked && i < first + rows; ++i)
      apply_mask<T>(b.scores + i * kAttentionScoreRow, b.mask, i, b.keys);
    for (i64 i = first; b.keys < filled && i < first + rows; ++i)
      for (i64 j = b.keys; j < filled; ++j) b.scores[i * kAttentionScoreRow + j] = kMinusInf<T>;
    softmax_rows<T>(b, first, rows, vectors);
  }
  if (b.dropout.words != nullptr) drop<T>(b.scores, b.dropout, b.rows, b.keys);
  multiply_tiles<T, true>({b.o, b.o_row, b.scores, kAttentionScoreRow, 1, b.v, b.v_row, b.keys}, b.rows,
                          b.dv_padded / kWidth<T>);
}

// scores: P = exp(score - lse); gradients: P (dP - delta), dP given.
template <class T>
void backward_row(const AttentionBackwardBlock<T>& b, i64 row, i64 vectors) {
  using V = Vector<T>;
  T* s = b.scores + row * kAttentionScoreRow;
  T* g = b.gradients + row * kAttentionScoreRow;
  const T lse = b.lse[row] == kMinusInf<T> ? -kMinusInf<T> : b.lse[row];
  const T delta = b.delta[row];
  for (i64 v = 0; v < vectors; ++v) {
    const V p = exp_vector(load(s + v * kWidth<T>) - lse);
    store(s + v * kWidth<T>, p);
    store(g + v * kWidth<T>, p * (load(g + v * kWidth<T>) - delta));
  }
}

template <class T>
void backward(const AttentionBackwardBlock<T>& b) {
  multiply_panels<T>(b.scores, b.q, b.q_row, b.k_packed, b.rows, b.keys, b.d);
  multiply_panels<T>(b.gradients, b.dout, b.dout_row, b.v_packed, b.rows, b.keys, b.dv);
  const i64 vectors = vectors_for(b.keys, kWidth<T>);
  const bool masked = b.mask.kind != AttentionBlockMask::None || b.mask.q_positions != nullptr;
  const bool drops = b.dropout.words != nullptr;
  if (drops) drop<T>(b.gradients, b.dropout, b.rows, b.keys);
  for (i64 i = 0; i < b.rows; ++i) {
    if (masked) apply_mask<T>(b.scores + i * kAttentionScoreRow, b.mask, i, b.keys);
    backward_row<T>(b, i, vectors);
  }
  if (drops) drop<T>(b.scores, b.dropout, b.rows, b.keys);
  const i64 d_vectors = b.d_padded / kWidth<T>;
  const i64 dv_vectors = b.dv_padded / kWidth<T>;
  multiply_tiles<T, true>(
      {b.grad_v, b.dv_padded, b.scores, 1, kAttentionScoreRow, b.dout, b.dout_row, b.rows}, b.keys,
      dv_vectors);
  multiply_tiles<T, true>({b.grad_k, b.d_padded, b.gradients, 1, kAttentionScoreRow, b.q, b.q_row, b.rows},
                          b.keys, d_vectors);
  multiply_tiles<T, true>({b.grad_q, b.grad_q_row, b.gradients, kAttentionScoreRow, 1, b.k, b.k_row, b.keys},
                          b.rows, d_vectors);
}

// A lane for each row, so that every sum is made as a tile makes it.
template <class T>
void row_products(T* sums, const T* a, const T* b, i64 rows, i64 n) {
  for (i64 j = 0; j < rows; j += kWidth<T>) {
    const i64 at = j / kPanel<T> * kPanel<T> * n + j % kPanel<T>;
    Vector<T> sum = {};
    for (i64 p = 0; p < n; ++p) sum += load(a + at + p * kPanel<T>) * load(b + at + p * kPanel<T>);
    T lanes[kWidth<T>];
    store(lanes, sum);
    for (i64 i = 0; i < kWidth<T> && j + i < rows; ++i) sums[j + i] = lanes[i];
  }
}

template <class T>
constexpr AttentionBlocks<T> blocks() {
  return {kWidth<T>, kVectorBytes == 64 ? 384 : 192, &pack<T>, &forward<T>, &backward<T>, &row_products<T>};
}

}  // namespace

const AttentionTable& attention_table() {
  static constexpr AttentionTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
