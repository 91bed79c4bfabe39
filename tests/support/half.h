// f16 worked out in double: what the library's conversions are held against.
#pragma once
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

// The number of these 16 bits.
inline double value_of_f16(std::uint16_t bits) {
  const double sign = (bits & 0x8000U) != 0 ? -1.0 : 1.0;
  const int exponent = (bits >> 10U) & 0x1f;
  const double fraction = bits & 0x3ffU;
  if (exponent == 31)
    return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                         : std::numeric_limits<double>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024.0 + fraction, exponent - 25));
}

// The number of f16 that is nearest, of two the even one.
inline double nearest_f16(double v) {
  if (!std::isfinite(v) || v == 0) return v;
  const int exponent = std::max(std::ilogb(v), -14);
  const double nearest = std::ldexp(std::nearbyint(std::ldexp(v, 10 - exponent)), exponent - 10);
  return std::abs(nearest) < 65536.0 ? nearest : std::copysign(std::numeric_limits<double>::infinity(), v);
}
