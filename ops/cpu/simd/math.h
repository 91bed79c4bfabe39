// Functions of one number, written so that the compiler turns a loop over them into vector code: no branches,
// only selections. The float versions are polynomials with a relative error of about 1e-7; the double
// versions of this file are the C library's. Each build of this folder has its own copy (see isa.h), the
// kernels of CUDA devices another one.
#pragma once
#include <math.h>

#include <cstdint>

#include "runtime/portable.h"

namespace tessera::cpu::TESSERA_ISA_NAMESPACE {

TS_PORTABLE inline float as_float(std::int32_t bits) { return __builtin_bit_cast(float, bits); }
TS_PORTABLE inline std::int32_t as_int(float x) { return __builtin_bit_cast(std::int32_t, x); }
TS_PORTABLE inline double as_double(std::int64_t bits) { return __builtin_bit_cast(double, bits); }
TS_PORTABLE inline std::int64_t as_int(double x) { return __builtin_bit_cast(std::int64_t, x); }

TS_PORTABLE inline float vabs(float x) { return __builtin_fabsf(x); }
TS_PORTABLE inline double vabs(double x) { return __builtin_fabs(x); }
TS_PORTABLE inline float vcopysign(float x, float s) { return __builtin_copysignf(x, s); }
TS_PORTABLE inline double vcopysign(double x, double s) { return __builtin_copysign(x, s); }
TS_PORTABLE inline float vsqrt(float x) { return __builtin_sqrtf(x); }
TS_PORTABLE inline double vsqrt(double x) { return __builtin_sqrt(x); }

// exp(x) = 2^n exp(r), n = round(x / ln 2), |r| <= ln 2 / 2. The shifter adds 1.5 2^23, which leaves n in the
// low bits. Two factors of about 2^(n/2), so that overflow gives inf and small results stay denormal.
struct ExpParts {
  float r;
  std::int32_t n;
};
TS_PORTABLE inline ExpParts exp_parts(float x) {
  constexpr float kShift = 12582912.0f;
  const float t = x * 1.44269504088896341f + kShift;
  const float n = t - kShift;
  float r = x - n * 0.693359375f;
  r = r + n * 2.12194440e-4f;
  return {r, as_int(t) - as_int(kShift)};
}
// exp(r) - 1 on the reduced range. Polynomials are summed in pairs (Estrin): many short chains of operations
// keep both arithmetic units busy where one long one would not.
TS_PORTABLE inline float expm1_poly(float r) {
  const float r2 = r * r;
  const float p01 = 1.6666665459e-1f * r + 5.0000001201e-1f;
  const float p23 = 8.3334519073e-3f * r + 4.1665795894e-2f;
  const float p45 = 1.9875691500e-4f * r + 1.3981999507e-3f;
  const float p = (p45 * r2 + p23) * r2 + p01;
  return p * r2 + r;
}
TS_PORTABLE inline float vexp(float x) {
  x = x < -104.0f ? -104.0f : x;
  x = x > 89.0f ? 89.0f : x;
  const ExpParts e = exp_parts(x);
  const std::int32_t half = e.n >> 1;
  const float a = as_float((half + 127) << 23);
  const float b = as_float((e.n - half + 127) << 23);
  return (expm1_poly(e.r) + 1.0f) * a * b;
}
TS_PORTABLE inline double vexp(double x) { return ::exp(x); }

// The same where results below 1e-38 may be 0: one factor 2^n, less work.
TS_PORTABLE inline float vexp_flushed(float x) {
  const bool low = x < -87.0f;
  const bool high = x > 88.0f;
  float c = low ? -87.0f : x;
  c = high ? 88.0f : c;
  const ExpParts e = exp_parts(c);
  float r = (expm1_poly(e.r) + 1.0f) * as_float((e.n + 127) << 23);
  r = high ? __builtin_inff() : r;
  return low ? 0.0f : r;
}
TS_PORTABLE inline double vexp_flushed(double x) { return ::exp(x); }

// The same for arguments of 0 and below, less still: 0 below `least`, which is at least -87.
TS_PORTABLE inline float vexp_negative(float x, float least) {
  const bool low = x < least;
  const ExpParts e = exp_parts(low ? least : x);
  const float r = (expm1_poly(e.r) + 1.0f) * as_float((e.n + 127) << 23);
  return low ? 0.0f : r;
}

TS_PORTABLE inline float vexpm1(float x) {
  const float big = vexp(x);
  float c = x < -20.0f ? -20.0f : x;
  c = c > 20.0f ? 20.0f : c;
  const ExpParts e = exp_parts(c);
  const float s = as_float((e.n + 127) << 23);
  const float small = e.n == 0 ? expm1_poly(e.r) : s * expm1_poly(e.r) + (s - 1.0f);
  return x > 20.0f ? big : x == 0.0f ? x : small;
}
TS_PORTABLE inline double vexpm1(double x) { return ::expm1(x); }

// log(x) = e ln 2 + log(m), m in [sqrt(1/2), sqrt(2)) (Cephes logf).
TS_PORTABLE inline float vlog(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  const std::int32_t bits = as_int(scaled);
  std::int32_t e = ((bits - 0x3f3504f3) >> 23);
  const float m = as_float(bits - (e << 23)) - 1.0f;
  const float ef = static_cast<float>(e) - (tiny ? 23.0f : 0.0f);
  const float z = m * m;
  float p = 7.0376836292e-2f;
  p = p * m - 1.1514610310e-1f;
  p = p * m + 1.1676998740e-1f;
  p = p * m - 1.2420140846e-1f;
  p = p * m + 1.4249322787e-1f;
  p = p * m - 1.6668057665e-1f;
  p = p * m + 2.0000714765e-1f;
  p = p * m - 2.4999993993e-1f;
  p = p * m + 3.3333331174e-1f;
  float y = p * m * z;
  y = y - ef * 2.12194440e-4f;
  y = y - 0.5f * z;
  float r = m + y;
  r = r + ef * 0.693359375f;
  constexpr float kInf = __builtin_inff();
  r = x == 0.0f ? -kInf : r;
  r = x == kInf ? kInf : r;
  r = x < 0.0f ? __builtin_nanf("") : r;
  return x != x ? x : r;
}
TS_PORTABLE inline double vlog(double x) { return ::log(x); }

TS_PORTABLE inline float vlog1p(float x) {
  const float u = 1.0f + x;
  const float r = vlog(u) - ((u - 1.0f) - x) / u;
  const float keep = vabs(x) < 1e-30f ? x : r;  // also keeps -0
  return u == 0.0f || x == __builtin_inff() ? vlog(u) : keep;
}
TS_PORTABLE inline double vlog1p(double x) { return ::log1p(x); }

// t / (t + 2) with t = exp(2 |x|) - 1, which loses no digits near 0; beyond 10 it is 1.
TS_PORTABLE inline float vtanh(float x) {
  const float z = vabs(x);
  const float c = z > 10.0f ? 10.0f : z;
  const ExpParts e = exp_parts(c + c);
  const float power = as_float((e.n + 127) << 23);
  const float t = expm1_poly(e.r) * power + (power - 1.0f);
  return vcopysign(t / (t + 2.0f), x);
}
TS_PORTABLE inline double vtanh(double x) { return ::tanh(x); }

template <class T>
TS_PORTABLE inline T vsigmoid(T x) {
  return T(1) / (T(1) + vexp_flushed(-x));
}

// log(1 + exp(-|x|)): what softplus is above the larger of x and 0.
TS_PORTABLE inline float softplus_rest(float x) {
  const float e = vexp_flushed(-vabs(x));
  const float u = 1.0f + e;
  return vlog(u) - ((u - 1.0f) - e) / u;  // what rounding u took away
}
TS_PORTABLE inline double softplus_rest(double x) { return ::log1p(::exp(-vabs(x))); }
template <class T>
TS_PORTABLE inline T positive_part(T x) {
  return x < T(0) ? T(0) : x;
}

}  // namespace tessera::cpu::TESSERA_ISA_NAMESPACE
