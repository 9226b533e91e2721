// half.h: f16 and bf16 to f32 and back without branches, for loops that the compiler vectorises.
//
//   What       The same roundings as ir/dtype.h (nearest even, NaN stays NaN, overflow becomes infinity).
//   Threads    Pure functions.
#pragma once

#include <bit>
#include <cstdint>

#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

HEDDLE_INLINE float from_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000u) << 16;
  const uint32_t rest = static_cast<uint32_t>(h & 0x7fffu) << 13;
  // Multiplying by 2^112 moves the exponent bias, subnormals included.
  const uint32_t scaled = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) * 0x1p112f);
  const uint32_t special = rest | 0x7f800000u;  // infinity and NaN
  return std::bit_cast<float>((rest >= 0x0f800000u ? special : scaled) | sign);
}

HEDDLE_INLINE uint16_t to_f16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t a = bits & 0x7fffffffu;
  // Below 2^-14 the result is subnormal: adding 0.5 leaves the rounded mantissa in the low bits.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(a) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (a - 0x38000000u + 0xfffu + ((a >> 13) & 1u)) >> 13;
  const uint32_t finite = a < 0x38800000u ? small : normal;
  const uint32_t large = a > 0x7f800000u ? 0x7e00u : 0x7c00u;
  return static_cast<uint16_t>((a >= 0x477ff000u ? large : finite) | sign);
}

HEDDLE_INLINE float from_bf16(uint16_t h) { return std::bit_cast<float>(static_cast<uint32_t>(h) << 16); }

HEDDLE_INLINE uint16_t to_bf16(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

}  // namespace heddle::host
