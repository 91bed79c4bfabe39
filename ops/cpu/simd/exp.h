// exp of whole vectors, for arguments that are not much above 0 (up to 80): e^x of scores less their maximum.
#pragma once
#include "ops/cpu/simd/vector.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

// Below -87 the result is 0 (not denormal); NaN stays NaN. Relative error about 1e-7. Such arguments are made
// 0 at first, like their results in the end: with zeros that is one instruction each, a choice of other
// values three.
inline Vector<float> exp_vector(Vector<float> x) {
  using V = Vector<float>;
  constexpr float kShift = 12583039.0f;  // 1.5 2^23, and 127, an exponent's zero
  const auto tiny = x < -87.0f;
  const V c = tiny ? V{} : x;
  const V t = c * 1.44269504088896341f + kShift;
  const V n = t - kShift;
  V r = c - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  V p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * (r * r) + r + 1.0f;
  const Int32Vector e = (Int32Vector)t << 23;
  const V result = p * (V)e;
  return tiny ? V{} : result;
}

// The same for doubles, below -700; Taylor's series to r^13, relative error below 3e-16.
inline Vector<double> exp_vector(Vector<double> x) {
  using V = Vector<double>;
  constexpr double kShift = 6755399441056767.0;  // 1.5 2^52, and 1023
  const auto tiny = x < -700.0;
  const V c = tiny ? V{} : x;
  const V t = c * 1.4426950408889634074 + kShift;
  const V n = t - kShift;
  V r = c - n * 6.93147180369123816490e-01;
  r = r - n * 1.90821492927058770002e-10;
  V p = r * (1.0 / 6227020800.0) + 1.0 / 479001600.0;
  p = p * r + 1.0 / 39916800.0;
  p = p * r + 1.0 / 3628800.0;
  p = p * r + 1.0 / 362880.0;
  p = p * r + 1.0 / 40320.0;
  p = p * r + 1.0 / 5040.0;
  p = p * r + 1.0 / 720.0;
  p = p * r + 1.0 / 120.0;
  p = p * r + 1.0 / 24.0;
  p = p * r + 1.0 / 6.0;
  p = p * r + 0.5;
  p = p * (r * r) + r + 1.0;
  const Int64Vector e = (Int64Vector)t << 52;
  const V result = p * (V)e;
  return tiny ? V{} : result;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
