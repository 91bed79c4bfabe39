// Element-wise blocks: a table entry per operation and type.
#include <algorithm>
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

// The few numbers that circular() does not reach are done one by one, if there are any.
template <bool cosine, class T>
void circular_block(T* out, const T* x, i64 n, T, T) {
  constexpr i64 kChunk = 512;
  T kept[kChunk];
  for (i64 at = 0; at < n; at += kChunk) {
    const i64 m = n - at < kChunk ? n - at : kChunk;
    decltype(as_int(T(0))) beyond = 0;
    for (i64 i = 0; i < m; ++i) beyond |= beyond_quarters(x[at + i]) ? -1 : 0;
    if (beyond != 0) std::copy(x + at, x + at + m, kept);  // out may be x
#pragma GCC ivdep
    for (i64 i = at; i < at + m; ++i) out[i] = circular<cosine>(x[i]);
    for (i64 i = 0; beyond != 0 && i < m; ++i)
      if (beyond_quarters(kept[i])) out[at + i] = far_circular(kept[i], cosine);
  }
}

// The exponent in general is read from memory, as that of two arrays is: the compiler leaves the loop scalar
// where it could ask beforehand what kind of number it is.
template <class T>
struct Exponents {
  static constexpr i64 kChunk = 512;
  T all[kChunk];
  explicit Exponents(T value) { std::fill(all, all + kChunk, value); }
};
template <class T, class F>
void raise_all(i64 n, T exponent, const F& each) {
  with_power(exponent, [&](auto power) {
    if constexpr (decltype(power)::value == Power::Any) {
      const Exponents<T> same(exponent);
      for (i64 at = 0; at < n; at += same.kChunk) {
        const i64 end = std::min(n, at + same.kChunk);
#pragma GCC ivdep
        for (i64 i = at; i < end; ++i) each(power, i, same.all[i - at]);
      }
    } else {
#pragma GCC ivdep
      for (i64 i = 0; i < n; ++i) each(power, i, exponent);
    }
  });
}
template <class T>
void power_block(T* out, const T* x, i64 n, T exponent, T) {
  raise_all(n, exponent, [=](auto power, i64 i, T p) { out[i] = raised<decltype(power)::value>(x[i], p); });
}
template <class T>
void power_backward_block(T* out, const T* dy, const T* x, i64 n, T exponent, T) {
  if (exponent == T(0)) return std::fill(out, out + n, T(0));
  raise_all(n, exponent - T(1), [=](auto power, i64 i, T p) {
    out[i] = dy[i] * (exponent * raised<decltype(power)::value>(x[i], p));
  });
}

constexpr std::size_t kUnary = static_cast<std::size_t>(UnaryOp::kCount);
constexpr std::size_t kBinary = static_cast<std::size_t>(BinaryOp::kCount);

template <class T, UnaryOp op>
constexpr typename PointwiseBlocks<T>::Unary unary_entry() {
  if constexpr (op == UnaryOp::Sin || op == UnaryOp::Cos) {
    return &circular_block<op == UnaryOp::Cos, T>;
  } else if constexpr (op == UnaryOp::PowScalar) {
    return &power_block<T>;
  } else if constexpr (op < UnaryOp::LogicalNot) {
    return &unary_block<op, T>;
  } else {
    return nullptr;
  }
}
template <class T, BinaryOp op>
constexpr typename PointwiseBlocks<T>::Binary binary_entry() {
  if constexpr (op == BinaryOp::PowScalarBackward) {
    return &power_backward_block<T>;
  } else if constexpr (op < BinaryOp::Eq) {
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
