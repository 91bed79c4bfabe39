// The arithmetic of rng.h: the polynomials behind normal values. Included by rng sources only, which are
// compiled without floating-point contraction.
#pragma once
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "runtime/dtype.h"
#include "runtime/philox.h"
#include "runtime/rng_series.h"

namespace tessera::detail {

// Upper 24 bits of a word, and 53 bits of two, as multiples of 2^-24 and 2^-53.
TS_PORTABLE inline double unit_24(std::uint32_t word) { return static_cast<double>(word >> 8U) * 0x1p-24; }
TS_PORTABLE inline double unit_53(std::uint32_t word, std::uint32_t more) {
  const std::uint64_t bits = (static_cast<std::uint64_t>(word) << 21U) | (more >> 11U);
  return static_cast<double>(static_cast<std::int64_t>(bits)) * 0x1p-53;
}

struct FusedMultiplyAdd {
  TS_PORTABLE double operator()(double a, double b, double c) const { return std::fma(a, b, c); }
};

// ln(x) for normal x > 0: x = 2^e m with m in [sqrt(1/2), sqrt(2)), ln m = 2 artanh((m-1)/(m+1)) by its
// series; |s| <= 0.1716, so eleven terms reach the last bit.
TS_PORTABLE inline double log_exact(double x) {
  constexpr std::uint64_t kSqrtHalf = 0x3FE6A09E667F3BCDULL;
  const auto bits = std::bit_cast<std::uint64_t>(x);
  const auto e = static_cast<std::int64_t>(bits - kSqrtHalf) >> 52U;
  const double m = std::bit_cast<double>(bits - (static_cast<std::uint64_t>(e) << 52U));
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  const double p = log_series(s2, FusedMultiplyAdd{});
  const double twice = s + s;
  const double ln_m = std::fma(twice * s2, p, twice);
  return std::fma(static_cast<double>(e), 0x1.62e42fefa39efp-1, ln_m);
}

struct SinCos {
  double sin, cos;
};
// Sine and cosine of the angle word / 2^32 turns. The quadrant is taken off in integers, the rest is at most
// an eighth of a turn, where the Taylor series to the 17th and 18th power are exact to the last bit.
TS_PORTABLE inline SinCos sincos_turns(std::uint32_t word) {
  const std::uint32_t quadrant = (word + 0x20000000U) >> 30U;
  const auto rest = static_cast<std::int32_t>(word - (quadrant << 30U));
  const double x = static_cast<double>(rest) * (0x1.921fb54442d18p+2 * 0x1p-32);
  const double x2 = x * x;
  const double s = sine_series(x, x2, FusedMultiplyAdd{});
  const double c = cosine_series(x2, FusedMultiplyAdd{});
  switch (quadrant & 3U) {
    case 0:
      return {s, c};
    case 1:
      return {c, -s};
    case 2:
      return {-s, -c};
    default:
      return {-c, s};
  }
}

struct NormalPair {
  double first, second;
};
TS_PORTABLE inline NormalPair box_muller(std::uint32_t a, std::uint32_t b) {
  // (a + 1) / 2^32 is in (0, 1]: never the logarithm of 0.
  const double u = (static_cast<double>(a) + 1.0) * 0x1p-32;
  const double radius = std::sqrt(-2.0 * log_exact(u));
  const SinCos angle = sincos_turns(b);
  return {radius * angle.cos, radius * angle.sin};
}

template <class T>
TS_PORTABLE T round_to(double value) {
  if constexpr (kHalf<T>) {
    return T(static_cast<float>(value));
  } else {
    return static_cast<T>(value);
  }
}

// The largest T below x.
template <class T>
TS_PORTABLE T below(double x) {
  if constexpr (kHalf<T>) {
    // The nearest T, and one step of the bit pattern more where that is not below x.
    T value(static_cast<float>(x));
    while (static_cast<double>(static_cast<float>(value)) >= x) {
      const bool negative = (value.bits & 0x8000U) != 0;
      if (value.bits == 0)
        value.bits = 0x8001U;
      else
        value.bits = static_cast<std::uint16_t>(negative ? value.bits + 1U : value.bits - 1U);
    }
    return value;
  } else {
    T value = static_cast<T>(x);
    return static_cast<double>(value) < x ? value : std::nextafter(value, static_cast<T>(-INFINITY));
  }
}

}  // namespace tessera::detail
