#include <array>
#include <utility>

#include "ops/cpu/simd/ternary_functions.h"
#include "ops/cpu/simd/ternary_table.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

namespace {

template <TernaryOp op, class T>
void ternary_block(T* out, const T* a, const T* b, const T* c, i64 n, T alpha) {
#pragma GCC ivdep
  for (i64 i = 0; i < n; ++i) out[i] = ternary_element<op>(a[i], b[i], c[i], alpha);
}

constexpr std::size_t kOps = static_cast<std::size_t>(TernaryOp::kCount);

template <class T, std::size_t... I>
constexpr auto entries(std::index_sequence<I...>) {
  return std::array<typename TernaryBlocks<T>::Block, kOps>{&ternary_block<static_cast<TernaryOp>(I), T>...};
}
constexpr auto kF32 = entries<float>(std::make_index_sequence<kOps>{});
constexpr auto kF64 = entries<double>(std::make_index_sequence<kOps>{});

}  // namespace

const TernaryTable& ternary_table() {
  static constexpr TernaryTable table{{&kF32[0]}, {&kF64[0]}};
  return table;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
