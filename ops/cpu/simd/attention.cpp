// Attention of a block of query rows with a block of keys; see ops/cpu/attention.h for the method.
#include "ops/cpu/simd/exp.h"
#include "ops/cpu/simd/math.h"
#include "ops/cpu/simd/tables.h"
#include "ops/cpu/simd/tile.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

inline i64 vectors_for(i64 n, i64 width) { return (n + width - 1) / width; }

template <class T>
void pack(T* out, const T* x, i64 row, i64 keys, i64 d) {
  for (i64 j0 = 0; j0 < keys; j0 += kPanel<T>) {
    const i64 have = keys - j0 < kPanel<T> ? keys - j0 : kPanel<T>;
    const T* from = x + j0 * row;
    for (i64 p = 0; p < d; ++p, out += kPanel<T>) {
      for (i64 j = 0; j < have; ++j) out[j] = from[j * row + p];
      for (i64 j = have; j < kPanel<T>; ++j) out[j] = T(0);
    }
  }
}

// scores = a packed^T, a: [rows][depth].
template <class T>
void multiply_panels(T* scores, const T* a, i64 a_row, const T* packed, i64 rows, i64 keys, i64 depth) {
  for (i64 j = 0; j < keys; j += kPanel<T>) {
    const i64 left = vectors_for(keys - j, kWidth<T>);
    multiply_tiles<T, false>({scores + j, kAttentionKeys, a, a_row, 1, packed + j * depth, kPanel<T>, depth},
                             rows, left < kVectors ? left : kVectors);
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
  }
  if (mask.q_positions != nullptr) {
    const i64 limit = mask.q_positions[row];
    const i64* at = mask.k_positions;
    for (i64 j = 0; j < keys; ++j) scores[j] = at[j] <= limit ? scores[j] : kMinusInf<T>;
  }
}

template <class T>
T largest(Vector<T> v) {
  T m = v[0];
  for (int i = 1; i < kWidth<T>; ++i) m = v[i] > m ? v[i] : m;
  return m;
}
template <class T>
T total(Vector<T> v) {
  T s = v[0];
  for (int i = 1; i < kWidth<T>; ++i) s += v[i];
  return s;
}

// Scores of one row to weights exp(score - m); brings row_max, row_sum and the row of o up to date.
template <class T>
void softmax_row(const AttentionForwardBlock<T>& b, i64 row, i64 vectors) {
  using V = Vector<T>;
  T* s = b.scores + row * kAttentionKeys;
  V m0 = load(s);
  for (i64 v = 1; v < vectors; ++v) {
    const V x = load(s + v * kWidth<T>);
    m0 = x > m0 ? x : m0;
  }
  const T before = b.row_max[row];
  const T here = largest<T>(m0);
  const T m = here > before ? here : before;
  const T shift = m == kMinusInf<T> ? T(0) : m;
  V sum = {};
  for (i64 v = 0; v < vectors; ++v) {
    const V p = exp_vector(load(s + v * kWidth<T>) - shift);
    store(s + v * kWidth<T>, p);
    sum += p;
  }
  if (m != before) {
    const V factor = exp_vector(V{} + (before - shift));
    T* o = b.o + row * b.o_row;
    for (i64 j = 0; j < b.dv_padded; j += kWidth<T>) store(o + j, load(o + j) * factor);
    b.row_sum[row] *= factor[0];
    b.row_max[row] = m;
  }
  b.row_sum[row] += total<T>(sum);
}

template <class T>
void forward(const AttentionForwardBlock<T>& b) {
  multiply_panels<T>(b.scores, b.q, b.q_row, b.k_packed, b.rows, b.keys, b.d);
  const i64 vectors = vectors_for(b.keys, kWidth<T>);
  const bool masked = b.mask.kind != AttentionBlockMask::None || b.mask.q_positions != nullptr;
  for (i64 i = 0; i < b.rows; ++i) {
    T* s = b.scores + i * kAttentionKeys;
    if (masked) apply_mask<T>(s, b.mask, i, b.keys);
    for (i64 j = b.keys; j < vectors * kWidth<T>; ++j) s[j] = kMinusInf<T>;
    softmax_row<T>(b, i, vectors);
  }
  multiply_tiles<T, true>({b.o, b.o_row, b.scores, kAttentionKeys, 1, b.v, b.v_row, b.keys}, b.rows,
                          b.dv_padded / kWidth<T>);
}

// scores: P = exp(score - lse); gradients: P (dP - delta), dP given.
template <class T>
void backward_row(const AttentionBackwardBlock<T>& b, i64 row, i64 vectors) {
  using V = Vector<T>;
  T* s = b.scores + row * kAttentionKeys;
  T* g = b.gradients + row * kAttentionKeys;
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
  for (i64 i = 0; i < b.rows; ++i) {
    if (masked) apply_mask<T>(b.scores + i * kAttentionKeys, b.mask, i, b.keys);
    backward_row<T>(b, i, vectors);
  }
  const i64 d_vectors = b.d_padded / kWidth<T>;
  const i64 dv_vectors = b.dv_padded / kWidth<T>;
  multiply_tiles<T, true>({b.grad_v, b.dv_padded, b.scores, 1, kAttentionKeys, b.dout, b.dout_row, b.rows},
                          b.keys, dv_vectors);
  multiply_tiles<T, true>({b.grad_k, b.d_padded, b.gradients, 1, kAttentionKeys, b.q, b.q_row, b.rows},
                          b.keys, d_vectors);
  multiply_tiles<T, true>({b.grad_q, b.grad_q_row, b.gradients, kAttentionKeys, 1, b.k, b.k_row, b.keys},
                          b.rows, d_vectors);
}

template <class T>
constexpr AttentionBlocks<T> blocks() {
  return {kWidth<T>, kVectorBytes == 64 ? 384 : 192, &pack<T>, &forward<T>, &backward<T>};
}

}  // namespace

const AttentionTable& attention_table() {
  static constexpr AttentionTable table{blocks<float>(), blocks<double>()};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
