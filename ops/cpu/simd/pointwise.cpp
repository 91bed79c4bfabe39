// Element-wise blocks: a table entry per operation and type.
#include <array>
#include <utility>

#include "ops/cpu/simd/half.h"
#include "ops/cpu/simd/pointwise_functions.h"
#include "ops/cpu/simd/tables.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

template <UnaryOp op, class T>
void unary_block(T* out, const T* x, i64 n, T alpha, T beta) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = unary_element<op>(x[i], alpha, beta);
}

template <BinaryOp op, class T>
void binary_block(T* out, const T* a, const T* b, i64 n, T alpha, T beta) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = binary_element<op>(a[i], b[i], alpha, beta);
}

constexpr std::size_t kUnary = static_cast<std::size_t>(UnaryOp::kCount);
constexpr std::size_t kBinary = static_cast<std::size_t>(BinaryOp::kCount);

template <class T, UnaryOp op>
constexpr typename PointwiseBlocks<T>::Unary unary_entry() {
  if constexpr (op < UnaryOp::LogicalNot) {
    return &unary_block<op, T>;
  } else {
    return nullptr;
  }
}
template <class T, BinaryOp op>
constexpr typename PointwiseBlocks<T>::Binary binary_entry() {
  if constexpr (op < BinaryOp::Eq) {
    return &binary_block<op, T>;
  } else {
    return nullptr;
  }
}

template <class T, std::size_t... I>
constexpr auto unary_entries(std::index_sequence<I...>) {
  return std::array<typename PointwiseBlocks<T>::Unary, kUnary>{unary_entry<T, static_cast<UnaryOp>(I)>()...};
}
template <class T, std::size_t... I>
constexpr auto binary_entries(std::index_sequence<I...>) {
  return std::array<typename PointwiseBlocks<T>::Binary, kBinary>{
      binary_entry<T, static_cast<BinaryOp>(I)>()...};
}

constexpr auto kUnaryF32 = unary_entries<float>(std::make_index_sequence<kUnary>{});
constexpr auto kUnaryF64 = unary_entries<double>(std::make_index_sequence<kUnary>{});
constexpr auto kBinaryF32 = binary_entries<float>(std::make_index_sequence<kBinary>{});
constexpr auto kBinaryF64 = binary_entries<double>(std::make_index_sequence<kBinary>{});

void block_from_bf16(float* out, const std::uint16_t* x, i64 n) {
  for (i64 i = 0; i < n; ++i) out[i] = from_bf16(x[i]);
}
void block_to_bf16(std::uint16_t* out, const float* x, i64 n) {
  for (i64 i = 0; i < n; ++i) out[i] = to_bf16(x[i]);
}

}  // namespace

const PointwiseTable& pointwise_table() {
  static constexpr PointwiseTable table{{&kUnaryF32[0], &kBinaryF32[0]},
                                        {&kUnaryF64[0], &kBinaryF64[0]},
                                        &block_from_bf16,
                                        &block_to_bf16,
                                        &block_from_f16,
                                        &block_to_f16};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
