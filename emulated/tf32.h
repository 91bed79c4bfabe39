// TF32: what tensor cores make of the factors of f32 products.
#pragma once
#include <bit>
#include <cstdint>
#include <vector>

namespace tessera::emulated {

// Ten bits behind the first, to the nearest, halves away from 0.
inline double to_tf32(double value) {
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(value));
  constexpr std::uint32_t kExponent = 0x7F800000U;
  if ((bits & kExponent) == kExponent) return value;  // infinities and NaN
  return static_cast<double>(std::bit_cast<float>((bits + 0x1000U) & ~0x1FFFU));
}
inline void round_to_tf32(std::vector<double>& values) {
  for (double& v : values) v = to_tf32(v);
}

}  // namespace tessera::emulated
