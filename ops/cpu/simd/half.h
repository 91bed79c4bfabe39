// bf16 and f16 numbers as their 16 bits (see runtime/dtype.h, whose inline functions the builds of this
// folder must not share).
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

inline float from_f16(std::uint16_t bits) {
  const std::uint32_t rest = bits & 0x7fffU;
  const std::uint32_t normal = (rest << 13) + 0x38000000U;
  const std::uint32_t small = __builtin_bit_cast(std::uint32_t, static_cast<float>(rest) * 0x1p-24F);
  const std::uint32_t large = (rest << 13) + 0x70000000U;
  std::uint32_t u = rest < 0x400U ? small : normal;
  u = rest >= 0x7c00U ? large : u;
  u = rest > 0x7c00U ? u | 0x400000U : u;
  return __builtin_bit_cast(float, u | static_cast<std::uint32_t>(bits & 0x8000U) << 16);
}
inline std::uint16_t to_f16(float x) {
  const std::uint32_t u = __builtin_bit_cast(std::uint32_t, x);
  const std::uint32_t rest = u & 0x7fffffffU;
  const std::uint32_t normal = (rest - 0x38000000U + 0xfffU + ((rest >> 13) & 1U)) >> 13;
  const std::uint32_t small =
      __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, rest) + 0.5F) - 0x3f000000U;
  std::uint32_t half = rest < 0x38800000U ? small : normal;
  half = rest >= 0x47800000U ? 0x7c00U : half;
  half = rest > 0x7f800000U ? 0x7e00U | ((rest >> 13) & 0x3ffU) : half;
  return static_cast<std::uint16_t>(half | ((u >> 16) & 0x8000U));
}

// Blocks, by the instructions that the build has for them (half_f16c.cpp) or by the functions above
// (half_portable.cpp).
void block_from_f16(float* out, const std::uint16_t* x, std::int64_t n);
void block_to_f16(std::uint16_t* out, const float* x, std::int64_t n);

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
