// The series behind normal values (rng_math.h), of one number or of a register of them: V is double or a
// vector type, fma(a, b, c) the fused a b + c of it.
#pragma once
#include "runtime/portable.h"

namespace tessera::detail {

// By Horner's scheme, the highest power's coefficient first.
template <class V, class Fma, class... Coefficients>
TS_PORTABLE inline V polynomial(V x, Fma fma, double highest, Coefficients... others) {
  V p = V{} + highest;
  ((p = fma(p, x, V{} + others)), ...);
  return p;
}

// (artanh(s) - s) / s^3 as a function of s^2, to the 23rd power of s.
template <class V, class Fma>
TS_PORTABLE inline V log_series(V s2, Fma fma) {
  return polynomial(s2, fma, 1.0 / 23.0, 1.0 / 21.0, 1.0 / 19.0, 1.0 / 17.0, 1.0 / 15.0, 1.0 / 13.0,
                    1.0 / 11.0, 1.0 / 9.0, 1.0 / 7.0, 1.0 / 5.0, 1.0 / 3.0);
}

template <class V, class Fma>
TS_PORTABLE inline V sine_series(V x, V x2, Fma fma) {
  const V p = polynomial(x2, fma, 1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0,
                         -1.0 / 39916800.0, 1.0 / 362880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0);
  return fma(x * x2, p, x);
}

template <class V, class Fma>
TS_PORTABLE inline V cosine_series(V x2, Fma fma) {
  return polynomial(x2, fma, -1.0 / 6402373705728000.0, 1.0 / 20922789888000.0, -1.0 / 87178291200.0,
                    1.0 / 479001600.0, -1.0 / 3628800.0, 1.0 / 40320.0, -1.0 / 720.0, 1.0 / 24.0, -0.5, 1.0);
}

}  // namespace tessera::detail
