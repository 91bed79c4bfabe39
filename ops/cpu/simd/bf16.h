// bf16 numbers as their 16 bits (see runtime/dtype.h, whose inline functions the builds of this folder must
// not share).
#pragma once
#include <cstdint>

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

inline float from_bf16(std::uint16_t bits) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(bits) << 16);
}
inline std::uint16_t to_bf16(float x) {
  const std::uint32_t u = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const std::uint32_t nan = (u >> 16) | 0x40U;
  return static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? nan : rounded);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
