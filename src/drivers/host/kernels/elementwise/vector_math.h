// vector_math.h: f32 functions without branches or calls, for loops that the compiler vectorises.
//
//   What       exp, log, tanh, erf, Gelu, sigmoid within a few units in the last place over the whole range,
//              infinities and NaN included. Polynomials are our own minimax fits (Lawson iteration on
//              Chebyshev points); the error of each is stated.
//   Threads    Pure functions.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

inline constexpr float kInf = std::numeric_limits<float>::infinity();

// x = k ln2 + r with |r| <= ln2 / 2; returns r, and k as an integer-valued float. For |x| < 2^20.
HEDDLE_INLINE float split_ln2(float x, float& k) {
  constexpr float kRound = 12582912.0f;  // adding 1.5 * 2^23 leaves the nearest integer in the low bits
  k = x * 1.44269504f + kRound - kRound;
  return (x - k * 0.693145752f) - k * 1.42860677e-6f;
}

// exp(r) - 1 for |r| <= ln2 / 2, relative error 1e-8.
HEDDLE_INLINE float expm1_small(float r) {
  float p = 1.39517172e-3f;
  p = p * r + 8.36959854e-3f;
  p = p * r + 4.16661873e-2f;
  p = p * r + 0.166665122f;
  p = p * r + 0.5f;
  return p * r * r + r;
}

HEDDLE_INLINE float pow2(int32_t k) { return std::bit_cast<float>((k + 127) << 23); }  // -126 <= k <= 127

HEDDLE_INLINE float vexp(float x) {
  float c = x > 89.0f ? 89.0f : x;
  c = c < -104.0f ? -104.0f : c;
  float k;
  const float r = split_ln2(c, k);
  // A NaN has no integer part; the polynomial carries it.
  const int32_t n = static_cast<int32_t>(c == c ? k : 0.0f);
  const int32_t half = n >> 1;  // two factors, so that neither leaves the normal range
  return (1.0f + expm1_small(r)) * pow2(half) * pow2(n - half);
}

// exp(x) for x <= 0, flushed to zero where the result would be subnormal.
HEDDLE_INLINE float vexp_negative(float x) {
  const float c = x < -87.3f ? -87.3f : x;
  float k;
  const float r = split_ln2(c, k);
  const float y = (1.0f + expm1_small(r)) * pow2(static_cast<int32_t>(c == c ? k : 0.0f));
  return x < -87.3f ? 0.0f : y;
}

HEDDLE_INLINE float vlog(float x) {
  const bool tiny = x < 1.17549435e-38f;
  const float scaled = tiny ? x * 8388608.0f : x;
  // Counting from 2^-1/2 puts the mantissa into [2^-1/2, 2^1/2).
  const uint32_t bits = std::bit_cast<uint32_t>(scaled) - 0x3f3504f3u;
  const float e = static_cast<float>(static_cast<int32_t>(bits) >> 23) - (tiny ? 23.0f : 0.0f);
  const float f = std::bit_cast<float>((bits & 0x007fffffu) + 0x3f3504f3u) - 1.0f;
  float p = 6.91514686e-2f;  // relative error of the whole 1e-9
  p = p * f - 0.117896959f;
  p = p * f + 0.118730165f;
  p = p * f - 0.1238437f;
  p = p * f + 0.142186552f;
  p = p * f - 0.166692495f;
  p = p * f + 0.200022265f;
  p = p * f - 0.249999866f;
  p = p * f + 0.333333105f;
  const float tail = p * f * f * f + e * 1.42860677e-6f - 0.5f * f * f;
  float y = tail + f + e * 0.693145752f;
  y = x == kInf ? kInf : y;
  y = x == 0.0f ? -kInf : y;
  y = x < 0.0f ? std::numeric_limits<float>::quiet_NaN() : y;
  return x == x ? y : x;
}

HEDDLE_INLINE float vtanh(float x) {
  const float a = std::fabs(x);
  const float twice = a > 9.2f ? 18.4f : a + a;  // tanh is 1 in f32 from 9.02 on
  float k;
  const float t = expm1_small(split_ln2(twice, k));
  const float scale = pow2(static_cast<int32_t>(a == a ? k : 0.0f));
  const float em1 = t * scale + (scale - 1.0f);
  return std::copysign(em1 / (em1 + 2.0f), x);
}

// The tail of the normal distribution, P(N > x), for 0 <= x; 0 beyond 6, where it is below 1e-9. Relative
// error 5e-8 near 0.
HEDDLE_INLINE float normal_tail(float x) {
  const float a = x > 6.0f ? 6.0f : x;
  float p = 1.41765844e-9f;
  p = p * a - 5.49322472e-8f;
  p = p * a + 9.42496174e-7f;
  p = p * a - 9.33767024e-6f;
  p = p * a + 5.71928103e-5f;
  p = p * a - 1.95697343e-4f;
  p = p * a - 1.43078778e-5f;
  p = p * a + 4.84947067e-3f;
  p = p * a - 3.63819823e-2f;
  p = p * a - 0.318294168f;
  p = p * a - 0.79788661f;
  p = p * a - 0.693147123f;
  const float q = vexp_negative(p);
  return x > 6.0f ? 0.0f : q;
}

HEDDLE_INLINE float verf(float x) {
  const float a = std::fabs(x);
  const float s = a * a;
  float p = 7.85385782e-5f;  // relative error 1e-9 on [0, 1]
  p = p * s - 8.01019254e-4f;
  p = p * s + 5.18832775e-3f;
  p = p * s - 2.68538108e-2f;
  p = p * s + 0.112835854f;
  p = p * s - 0.37612626f;
  p = p * s + 1.12837911f;
  const float far = 1.0f - 2.0f * normal_tail(a * 1.41421356f);
  return std::copysign(a < 1.0f ? p * a : far, x);
}

HEDDLE_INLINE float vgelu(float x) {
  const float low = x * normal_tail(std::fabs(x));
  const float high = x > 6.0f ? x : x - low;
  return x > 0.0f ? high : low;
}

HEDDLE_INLINE float vsigmoid(float x) { return 1.0f / (1.0f + vexp(-x)); }

HEDDLE_INLINE float vgelu_tanh(float x) {
  const float inner = 0.797884561f * (x + 0.044715f * x * x * x);
  return x * vsigmoid(2.0f * inner);
}

}  // namespace heddle::host
