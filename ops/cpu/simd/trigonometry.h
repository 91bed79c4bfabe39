// Sine and cosine, in the manner of math.h: x less the nearest multiple of pi/2, and of what is left, at most
// pi/4, both by polynomials (minimax, of r^2); the quarter says which of them it is, and its sign.
#pragma once
#include "ops/cpu/simd/math.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

constexpr double kTwoOverPi = 0.63661977236758134308;
constexpr double kQuarterShift = 6755399441055744.0;  // 1.5 2^52: leaves the quarter in the low bits

// Beyond these the multiple of pi/2 has too many digits to be taken away exactly.
TS_PORTABLE inline bool beyond_quarters(float x) { return vabs(x) > 268435456.0f; }  // 2^28
TS_PORTABLE inline bool beyond_quarters(double x) { return vabs(x) > 1048576.0; }    // 2^20

// The one of the quarter, negative in half of them. sin starts in quarter 0, cos in 1. Chosen by bits: SSE2
// compares no integers of 64.
TS_PORTABLE inline double of_quarter(std::int64_t quarter, double sine, double cosine) {
  const std::int64_t odd = -(quarter & 1);
  const std::int64_t v = as_int(sine) ^ ((as_int(sine) ^ as_int(cosine)) & odd);
  const std::uint64_t sign = static_cast<std::uint64_t>(quarter & 2) << 62;
  return as_double(v ^ static_cast<std::int64_t>(sign));
}

// In double throughout, so that no digit of the result is lost near multiples of pi: 25 bits of pi/2 times n
// are exact, and the rest of pi/2 has 53 bits. Half an ulp.
template <bool cosine>
TS_PORTABLE inline float circular(float x) {
  const double wide = x;
  const double t = wide * kTwoOverPi + kQuarterShift;
  const double n = t - kQuarterShift;
  const double r = (wide - n * 1.5707963109016418) - n * 1.5893254773528196e-8;
  const double z = r * r;
  const double s01 = 0.008333331863560767 * z - 0.16666666663826582;
  const double s23 = 2.724914679681317e-06 * z - 0.00019840080719912243;
  const double c01 = 0.04166665052210501 * z - 0.499999999688041;
  const double c23 = 2.446293308351067e-05 * z - 0.001388758255144707;
  const double z2 = z * z;
  const double s = r * ((s23 * z2 + s01) * z + 1.0);  // of -0 it is -0
  const double c = (c23 * z2 + c01) * z + 1.0;
  return static_cast<float>(of_quarter(as_int(t) + (cosine ? 1 : 0), s, c));
}

// What is left of x as a sum of two numbers: pi/2 in four parts, whose first three have 33 bits (times n
// exact); what rounding a difference took away goes into the second number.
struct QuarterRest {
  double head;
  double tail;
};
TS_PORTABLE inline QuarterRest less(double a, double b) {
  const double d = a - b;
  const double back = d - a;
  return {d, (a - (d - back)) - (b + back)};
}
TS_PORTABLE inline QuarterRest quarter_rest(double x, double n) {
  const QuarterRest second = less(x - n * 1.5707963267341256, n * 6.077100506303966e-11);
  const QuarterRest third = less(second.head, n * 2.0222662487111665e-21);
  const double tail = (second.tail + third.tail) - n * 8.4784276603689e-32;
  const double head = third.head + tail;
  return {head, (third.head - head) + tail};
}

template <bool cosine>
TS_PORTABLE inline double circular(double x) {
  const double t = x * kTwoOverPi + kQuarterShift;
  const double n = t - kQuarterShift;
  const QuarterRest r = quarter_rest(x, n);
  const double z = r.head * r.head;
  double p = 1.5917771759341917e-10 * z - 2.5051126876085338e-08;
  p = p * z + 2.755731607868067e-06;
  p = p * z - 0.00019841269836712495;
  p = p * z + 0.008333333333330918;
  p = p * z - 0.16666666666666666;
  const double s = r.head + (r.head * z * p + r.tail * (1.0 - 0.5 * z));
  double q = -1.1382408754153254e-11 * z + 2.087614315990944e-09;
  q = q * z - 2.755731725679604e-07;
  q = q * z + 2.4801587298736863e-05;
  q = q * z - 0.0013888888888887378;
  q = q * z + 0.041666666666666664;
  const double w = 1.0 - 0.5 * z;
  const double c = w + (((1.0 - w) - 0.5 * z) + (z * z * q - r.head * r.tail));
  const double v = of_quarter(as_int(t) + (cosine ? 1 : 0), s, c);
  return !cosine && x == 0.0 ? x : v;  // of -0 it is -0
}

// Of any number; the two branches are why whole blocks call circular() (pointwise.cpp).
TS_PORTABLE inline float far_circular(float x, bool cosine) { return cosine ? ::cosf(x) : ::sinf(x); }
TS_PORTABLE inline double far_circular(double x, bool cosine) { return cosine ? ::cos(x) : ::sin(x); }
template <bool cosine, class T>
TS_PORTABLE inline T any_circular(T x) {
  return beyond_quarters(x) ? far_circular(x, cosine) : circular<cosine>(x);
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
