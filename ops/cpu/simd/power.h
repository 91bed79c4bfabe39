// Powers, in the manner of math.h.
#pragma once
#include <type_traits>

#include "ops/cpu/simd/math.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

// log2 of a number that is not negative: k + log2(m), m in [sqrt(1/2), sqrt(2)), by s = (m - 1) / (m + 1),
// which is exact but for one rounding. Relative error 2^-44. Of NaN: some number.
TS_PORTABLE inline double float_log2(double x) {
  constexpr std::int64_t kOne = 0x3ff0000000000000;
  constexpr std::int64_t kRoot = 0x3fe6a09e667f3bcd;  // sqrt(1/2)
  constexpr std::int64_t kFraction = 0x000fffffffffffff;
  constexpr std::int64_t kInteger = 0x4330000000000000;  // 2^52, whose low bits are those of an integer
  const std::int64_t bits = as_int(x) + (kOne - kRoot);
  const double m = as_double((bits & kFraction) + kRoot);
  const auto exponent = static_cast<std::int64_t>(static_cast<std::uint64_t>(bits) >> 52);
  const double k = as_double(exponent | kInteger) - (4503599627370496.0 + 1023.0);
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  const double z2 = z * z;
  const double p01 = 0.9617966941122649 * z + 2.885390081777851;
  const double p23 = 0.41220922406110433 * z + 0.5770779426603044;
  const double p45 = 0.28288502340748234 * z + 0.31990680380701336;
  const double r = ((p45 * z2 + p23) * z2 + p01) * s + k;
  const double limited = x == 0.0 ? -__builtin_inf() : r;
  return x == __builtin_inf() ? x : limited;
}
// 2^x with a relative error of 2^-34; 2^-300 and 2^300 beyond them, which are 0 and infinite as floats.
TS_PORTABLE inline double float_exp2(double x) {
  constexpr double kShift = 6755399441056767.0;  // 1.5 2^52, and 1023, an exponent's zero
  x = x < -300.0 ? -300.0 : x;
  x = x > 300.0 ? 300.0 : x;
  const double t = x + kShift;
  const double r = x - (t - kShift);
  const double r2 = r * r;
  const double p01 = 0.6931471805568324 * r + 0.9999999999595618;
  const double p23 = 0.055504109063258665 * r + 0.24022651213498092;
  const double p45 = 0.0013333478473685416 * r + 0.009618025613318034;
  const double p67 = 1.5303700711365693e-05 * r + 0.00015469729214118296;
  const double p = ((p67 * r2 + p45) * r2 + p23) * r2 + p01;
  return p * as_double(static_cast<std::int64_t>(static_cast<std::uint64_t>(as_int(t)) << 52));
}

// x^y as C's powf has it, to half an ulp: 2^(y log2 |x|) in double, and what signs, zeros, infinities and NaN
// are to give.
TS_PORTABLE inline float vpow(float base, float exponent) {
  const double x = base;
  const double y = exponent;
  const double size = vabs(x);
  constexpr double kInf = __builtin_inf();
  double r = float_exp2(y * float_log2(size));
  r = size == 1.0 ? 1.0 : r;                                             // to the power of infinity, too
  const double reach = vabs(y) > 2147483648.0 ? 2147483648.0 : vabs(y);  // floats beyond are even
  const double shifted = reach + 4503599627370496.0;                     // 2^52
  const bool whole = shifted - 4503599627370496.0 == reach;
  const std::int64_t odd = whole ? as_int(shifted) & 1 : 0;
  const auto sign = static_cast<std::uint64_t>(as_int(x)) & (static_cast<std::uint64_t>(odd) << 63);
  r = as_double(as_int(r) | static_cast<std::int64_t>(sign));
  r = (x < 0.0) & (size < kInf) & !whole ? __builtin_nan("") : r;
  r = (x != x) | (y != y) ? x + y : r;
  r = (y == 0.0) | (x == 1.0) ? 1.0 : r;
  return static_cast<float>(r);
}
TS_PORTABLE inline double vpow(double x, double y) { return ::pow(x, y); }

// The exponents that PyTorch does not raise to in general: what it does instead sets zeros, NaN and the last
// bit (roots of -inf are NaN).
enum class Power : std::uint8_t { Zero, One, Two, Three, MinusOne, MinusTwo, Root, InverseRoot, Any };

template <Power power, class T>
TS_PORTABLE inline T raised(T x, T p) {
  if constexpr (power == Power::Zero) return T(1);
  if constexpr (power == Power::One) return x;
  if constexpr (power == Power::Two) return x * x;
  if constexpr (power == Power::Three) return x * x * x;
  if constexpr (power == Power::MinusOne) return T(1) / x;
  if constexpr (power == Power::MinusTwo) return T(1) / (x * x);
  if constexpr (power == Power::Root) return vsqrt(x);
  if constexpr (power == Power::InverseRoot) return T(1) / vsqrt(x);
  return vpow(x, p);
}

// f of the power's constant: a loop's choice is made outside of it.
template <class T, class F>
TS_PORTABLE inline auto with_power(T p, const F& f) {
  if (p == T(0)) return f(std::integral_constant<Power, Power::Zero>{});
  if (p == T(1)) return f(std::integral_constant<Power, Power::One>{});
  if (p == T(2)) return f(std::integral_constant<Power, Power::Two>{});
  if (p == T(3)) return f(std::integral_constant<Power, Power::Three>{});
  if (p == T(-1)) return f(std::integral_constant<Power, Power::MinusOne>{});
  if (p == T(-2)) return f(std::integral_constant<Power, Power::MinusTwo>{});
  if (p == T(0.5)) return f(std::integral_constant<Power, Power::Root>{});
  if (p == T(-0.5)) return f(std::integral_constant<Power, Power::InverseRoot>{});
  return f(std::integral_constant<Power, Power::Any>{});
}
template <class T>
TS_PORTABLE inline T raised(T x, T p) {
  return with_power(p, [=](auto power) { return raised<decltype(power)::value>(x, p); });
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
