// The bits of rng.h, on the CPU and on devices: Philox4x32-10, and what a dropout keeps.
#pragma once
#include <cstdint>

#include "runtime/portable.h"
#include "runtime/rng_key.h"

namespace tessera::detail {

constexpr int kLaneShift = 56;
constexpr int kWordsPerBlock = 4;

struct PhiloxBlock {
  std::uint32_t w0, w1, w2, w3;
};

TS_PORTABLE inline PhiloxBlock philox_block(RngKey key, std::uint64_t block) {
  constexpr std::uint64_t kMul0 = 0xD2511F53U;
  constexpr std::uint64_t kMul1 = 0xCD9E8D57U;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9U;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85U;
  PhiloxBlock c{static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32U),
                static_cast<std::uint32_t>(key.stream), static_cast<std::uint32_t>(key.stream >> 32U)};
  auto k0 = static_cast<std::uint32_t>(key.seed);
  auto k1 = static_cast<std::uint32_t>(key.seed >> 32U);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p0 = kMul0 * c.w0;
    const std::uint64_t p1 = kMul1 * c.w2;
    c = {static_cast<std::uint32_t>(p1 >> 32U) ^ c.w1 ^ k0, static_cast<std::uint32_t>(p1),
         static_cast<std::uint32_t>(p0 >> 32U) ^ c.w3 ^ k1, static_cast<std::uint32_t>(p0)};
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  return c;
}

// Kept where word >= threshold. p = 1 needs 2^32, hence 64 bits.
TS_PORTABLE inline std::uint64_t drop_threshold(double p) {
  return static_cast<std::uint64_t>(p * 0x1p32 + 0.5);
}

}  // namespace tessera::detail
