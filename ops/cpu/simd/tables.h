// What the vector kernels offer to the drivers: one table per family, plain pointers only.
#pragma once
#include <cstdint>

#include "ops/cpu/isa.h"

namespace tessera::cpu {

using i64 = std::int64_t;

// Contiguous blocks of one element type. out may be x, a or b.
template <class T>
struct PointwiseBlocks {
  using Unary = void (*)(T* out, const T* x, i64 n, T alpha, T beta);
  using Binary = void (*)(T* out, const T* a, const T* b, i64 n, T alpha, T beta);
  const Unary* unary;    // by UnaryOp; null where the op writes bool
  const Binary* binary;  // by BinaryOp; null for comparisons
};
struct PointwiseTable {
  PointwiseBlocks<float> f32;
  PointwiseBlocks<double> f64;
  void (*from_bf16)(float* out, const std::uint16_t* x, i64 n);
  void (*to_bf16)(std::uint16_t* out, const float* x, i64 n);
  void (*from_f16)(float* out, const std::uint16_t* x, i64 n);
  void (*to_f16)(std::uint16_t* out, const float* x, i64 n);
};
TESSERA_ISA_TABLE(PointwiseTable, pointwise_table)

// Reductions of contiguous blocks; T is float or double, sums are double.
template <class T>
struct ReduceBlocks {
  double (*sum)(const T* x, i64 n);
  double (*squares)(const T* x, i64 n, double centre);  // sum of (x - centre)^2
  T (*max)(const T* x, i64 n);                          // NaN if there is one; -inf for n = 0
  T (*min)(const T* x, i64 n);
  // Column-wise: acc[j] takes up x[r * stride + j] for r < rows, j < n.
  void (*add_columns)(double* acc, const T* x, i64 rows, i64 stride, i64 n);
  void (*add_square_columns)(double* acc, const double* centre, const T* x, i64 rows, i64 stride, i64 n);
  void (*max_columns)(T* acc, const T* x, i64 rows, i64 stride, i64 n);
  void (*min_columns)(T* acc, const T* x, i64 rows, i64 stride, i64 n);
};
struct ReduceTable {
  ReduceBlocks<float> f32;
  ReduceBlocks<double> f64;
};
TESSERA_ISA_TABLE(ReduceTable, reduce_table)

// Rows of softmax and layer norm.
template <class T>
struct RowBlocks {
  void (*softmax)(T* out, const T* x, i64 n);
  void (*log_softmax)(T* out, const T* x, i64 n);
  void (*softmax_backward)(T* dx, const T* dy, const T* y, i64 n);
  void (*log_softmax_backward)(T* dx, const T* dy, const T* y, i64 n);
  // weight and bias may be null. stats[0] = mean, stats[1] = rstd.
  void (*layer_norm)(T* y, const T* x, const T* weight, const T* bias, i64 n, double eps, T* stats);
  // dx may be null; dweight and dbias (either may be null) are added to.
  void (*layer_norm_backward)(T* dx, T* dweight, T* dbias, const T* dy, const T* x, const T* weight, i64 n,
                              const T* stats);
  // dweight += dy normal, dbias += dy; either may be null.
  void (*norm_parameters)(T* dweight, T* dbias, const T* dy, const T* normal, i64 n);
};
struct RowTable {
  RowBlocks<float> f32;
  RowBlocks<double> f64;
};
TESSERA_ISA_TABLE(RowTable, row_table)

// Optimizer steps and sums over flat memory.
template <class T>
struct AdamWCoefficients {
  T decay;  // 1 - lr wd
  T beta1, beta2;
  T one_minus_beta1, one_minus_beta2;
  T step_size;    // lr / (1 - beta1^t)
  T inv_sqrt_c2;  // 1 / sqrt(1 - beta2^t)
  T eps;
  T grad_scale;
};
template <class T>
struct SgdCoefficients {
  T lr, momentum, one_minus_dampening, weight_decay, grad_scale;
  bool nesterov, first_step;
};
template <class T>
struct OptimizerBlocks {
  void (*adamw)(T* p, const T* g, T* m, T* v, i64 n, const AdamWCoefficients<T>& c);
  void (*sgd)(T* p, const T* g, T* buffer, i64 n, const SgdCoefficients<T>& c);  // buffer may be null
};
struct OptimizerTable {
  OptimizerBlocks<float> f32;
  OptimizerBlocks<double> f64;
};
TESSERA_ISA_TABLE(OptimizerTable, optimizer_table)

// c[m, n] += sum over k of a[m, k] b[k, n], any strides (in elements).
template <class T>
struct GemmBlock {
  T* c;
  const T* a;
  const T* b;
  i64 m, n, k;
  i64 c_row, c_col;
  i64 a_row, a_col;
  i64 b_row, b_col;
};
template <class T>
struct GemmBlocks {
  // Packs both operands; meant for tiles of a hundred or more rows and columns.
  void (*packed)(const GemmBlock<T>& g, T* workspace);
  i64 (*workspace)();  // elements that packed() needs
  // Straight loops for products too small to pack.
  void (*small)(const GemmBlock<T>& g);
};
struct GemmTable {
  GemmBlocks<float> f32;
  GemmBlocks<double> f64;
};
TESSERA_ISA_TABLE(GemmTable, gemm_table)

// Attention, one block of at most kAttentionKeys keys at a time. Rows of q, v, o, ... are padded with zeros
// to a multiple of the vector width where the comment says "padded".
constexpr i64 kAttentionKeys = 128;
// From a row of scores to the next: a line more than the keys, so that a column of them, which the products
// for the gradients of k and v go down, is spread over all sets of a cache.
constexpr i64 kAttentionScoreRow = kAttentionKeys + 16;

struct AttentionBlockMask {
  enum Kind { None, Keep, AddSame, AddBf16, AddF16 };
  // Both null: no causal test is needed. Row i sees key j if k_positions[j] <= q_positions[i].
  const i64* q_positions;
  const i64* k_positions;
  Kind kind;
  const void* data;  // element (row i, key j) at i * row + j * col
  i64 row, col;
};
// Which of the weights are kept, and how much they count then.
template <class T>
struct AttentionBlockDropout {
  const std::uint32_t* words;  // [rows][kAttentionKeys], kept from `limit` on; null: nothing is dropped
  std::uint32_t limit;
  T factor;
};
template <class T>
struct AttentionForwardBlock {
  const T* q;  // already scaled
  i64 q_row;
  const T* k_packed;
  const T* v;  // padded
  i64 v_row;
  T* o;  // padded
  i64 o_row;
  T* row_max;
  T* row_sum;
  T* scores;  // scratch, rows * kAttentionScoreRow
  i64 rows, keys, d, dv_padded;
  AttentionBlockMask mask;
  AttentionBlockDropout<T> dropout;
};
template <class T>
struct AttentionBackwardBlock {
  const T* q;  // already scaled, padded
  i64 q_row;
  const T* dout;  // padded
  i64 dout_row;
  const T* k;  // padded
  i64 k_row;
  const T* k_packed;
  const T* v_packed;
  T* grad_q;  // padded; without the factor scale
  i64 grad_q_row;
  T* grad_k;  // padded, [keys][d_padded]
  T* grad_v;  // padded, [keys][dv_padded]
  const T* lse;
  const T* delta;
  T* scores;     // scratch, rows * kAttentionScoreRow
  T* gradients;  // scratch, the same; then d(loss) / d(scaled score)
  i64 rows, keys, d, dv, d_padded, dv_padded;
  AttentionBlockMask mask;
  AttentionBlockDropout<T> dropout;
};
template <class T>
struct AttentionBlocks {
  i64 width;       // of a vector, in elements
  i64 block_rows;  // rows of q that suit a forward block
  // Transposes `keys` rows of d numbers into panels; the last vector of keys is filled up with zeros.
  void (*pack)(T* out, const T* x, i64 row, i64 keys, i64 d);
  void (*forward)(const AttentionForwardBlock<T>& block);
  void (*backward)(const AttentionBackwardBlock<T>& block);
  // sums[i] = sum over j of a[i][j] b[i][j] of packed rows, made as `backward` makes its products.
  void (*row_products)(T* sums, const T* a_packed, const T* b_packed, i64 rows, i64 n);
};
struct AttentionTable {
  AttentionBlocks<float> f32;
  AttentionBlocks<double> f64;
};
TESSERA_ISA_TABLE(AttentionTable, attention_table)

}  // namespace tessera::cpu
