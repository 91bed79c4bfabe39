// The error function and the normal distribution, in the manner of math.h.
#pragma once
#include "ops/cpu/simd/math.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

// erf by two ranges: an odd polynomial near 0, and 1 - exp(q(|x|)) beyond. The exponential is kept apart
// because the normal distribution's lower tail needs 1 - erf without cancellation.
TS_PORTABLE inline float erf_small(float x) {
  const float s = x * x;
  float r = -5.96761703e-4f;
  r = r * s + 4.99119423e-3f;
  r = r * s - 2.67681349e-2f;
  r = r * s + 1.12819925e-1f;
  r = r * s - 3.76125336e-1f;
  r = r * s + 1.28379166e-1f;
  return r * x + x;
}
TS_PORTABLE inline float erfc_large(float t) {
  t = t > 10.5f ? 10.5f : t;  // exp(-104) = 0 from there on; keeps the polynomial in its range
  const float s = t * t;
  float r = -1.72853470e-5f * t + 3.83197126e-4f;
  const float u = -3.88396438e-3f * t + 2.42546219e-2f;
  r = r * s + u;
  r = r * t - 1.06777877e-1f;
  r = r * t - 6.34846687e-1f;
  r = r * t - 1.28717512e-1f;
  r = r * t - t;
  return vexp_flushed(r);
}
constexpr float kErfSplit = 0.927734375f;
TS_PORTABLE inline float verf(float x) {
  const float t = vabs(x);
  const float r = t > kErfSplit ? vcopysign(1.0f - erfc_large(t), x) : erf_small(x);
  return x != x ? x : r;
}
TS_PORTABLE inline double verf(double x) { return ::erf(x); }

// Normal distribution function and its density, from one exponential: the tail is exp(-x^2 / 2) times a
// polynomial in 1 / (1 + p |x|) (the form of Abramowitz and Stegun 26.2.17, one degree higher; error below
// 2e-8). Beyond 9 density and tail are 0 (they are below 1e-17): denormal numbers among slopes would slow the
// matrix products that follow many times over.
template <class T>
struct Normal {
  T cdf;
  T density;
};
TS_PORTABLE inline Normal<float> normal(float x) {
  const float e = vexp_negative(-0.5f * (x * x), -40.5f);
  const float t = 1.0f / (1.0f + 0.28f * vabs(x));
  const float t2 = t * t;
  const float p01 = 0.06593842740888306f * t + 0.11677352890519153f;
  const float p23 = -0.2416348738341732f * t + 0.2727263899925196f;
  const float p45 = -0.10648177888641654f * t + 0.3926782959082554f;
  const float p = (p45 * t2 + p23) * t2 + p01;
  const float tail = p * (t * e);
  return {x < 0.0f ? tail : 1.0f - tail, e * 0.3989422804014327f};
}
TS_PORTABLE inline Normal<double> normal(double x) {
  return {0.5 * ::erfc(-x * 0.70710678118654752440), 0.39894228040143267794 * ::exp(-0.5 * x * x)};
}

// The distribution function alone, cheaper: 2^q(|x|) is the tail, of which nothing is left beyond 6 (1e-9).
// Relative error of the tail below 5e-6, of the whole 1e-7. Of a NaN: some number.
TS_PORTABLE inline float normal_cdf(float x) {
  constexpr float kEnd = 6.0f;
  constexpr float kShift = 12582912.0f;
  const float a = vabs(x);
  const float c = a < kEnd ? a : kEnd;
  const float c2 = c * c;
  const float c4 = c2 * c2;
  const float q01 = -1.1511062383651733f * c - 0.9999999403953552f;
  const float q23 = -0.05247285217046738f * c - 0.45920702815055847f;
  const float q45 = -3.614804427343188e-06f * c + 0.006975163705646992f;
  const float q67 = 8.52388038765639e-05f * c - 0.00029084846028126776f;
  const float q89 = 1.430794895895815e-06f * c - 1.4030738384462893e-05f;
  const float qab = 2.202453108779423e-09f * c - 8.434139431301446e-08f;
  const float q = (qab * c2 + q89) * (c4 * c4) + ((q67 * c2 + q45) * c4 + (q23 * c2 + q01));
  const float n = q + kShift;
  const float r = q - (n - kShift);
  const float r2 = r * r;
  const float e01 = 0.6931470036506653f * r + 1.0f;
  const float e23 = 0.05550733581185341f * r + 0.24022242426872253f;
  const float e45 = 0.0013264724984765053f * r + 0.009671512991189957f;
  const float e = (e45 * r2 + e23) * r2 + e01;
  float tail = as_float(as_int(e) + (as_int(n) << 23));
  tail = a > kEnd ? 0.0f : tail;
  return x < 0.0f ? tail : 1.0f - tail;
}
TS_PORTABLE inline double normal_cdf(double x) { return normal(x).cdf; }

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
