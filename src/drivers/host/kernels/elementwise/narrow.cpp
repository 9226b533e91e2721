#include "drivers/host/kernels/elementwise/narrow.h"

#include "base/made_once.h"
#include "drivers/host/kernels/elementwise/half.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace heddle::host {
namespace {

// By the processor's instructions for f16, eight at a time, the last ones singly.
#if defined(__x86_64__)

#define HEDDLE_F16C __attribute__((target("avx,f16c")))

bool has_f16c() {
  static constinit MadeOnce<const bool> has;
  return has.get([] {  // clang 16 has no name for it in __builtin_cpu_supports()
    unsigned a = 0, b = 0, c = 0, d = 0;
    return __builtin_cpu_supports("avx") != 0 && __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
  });
}

HEDDLE_F16C void widen_by_instruction(const uint16_t* source, float* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(halves));
  }
  for (; i < count; ++i) target[i] = _cvtsh_ss(source[i]);
}

HEDDLE_F16C void narrow_by_instruction(const float* source, uint16_t* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(target + i), halves);
  }
  for (; i < count; ++i) target[i] = _cvtss_sh(source[i], _MM_FROUND_TO_NEAREST_INT);
}

HEDDLE_F16C void round_by_instruction(const float* source, float* target, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m128i halves = _mm256_cvtps_ph(_mm256_loadu_ps(source + i), _MM_FROUND_TO_NEAREST_INT);
    _mm256_storeu_ps(target + i, _mm256_cvtph_ps(halves));
  }
  for (; i < count; ++i) target[i] = _cvtsh_ss(_cvtss_sh(source[i], _MM_FROUND_TO_NEAREST_INT));
}

#else

bool has_f16c() { return false; }
void widen_by_instruction(const uint16_t*, float*, int64_t) {}
void narrow_by_instruction(const float*, uint16_t*, int64_t) {}
void round_by_instruction(const float*, float*, int64_t) {}

#endif

HEDDLE_VECTORISED void widen(const uint16_t* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = from_f16(source[i]);
}

HEDDLE_VECTORISED void narrow(const float* source, uint16_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = to_f16(source[i]);
}

HEDDLE_VECTORISED void round(const float* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = from_f16(to_f16(source[i]));
}

}  // namespace

void f16_to_f32(const uint16_t* source, float* target, int64_t count) {
  return has_f16c() ? widen_by_instruction(source, target, count) : widen(source, target, count);
}

void f32_to_f16(const float* source, uint16_t* target, int64_t count) {
  return has_f16c() ? narrow_by_instruction(source, target, count) : narrow(source, target, count);
}

void round_to_f16(const float* source, float* target, int64_t count) {
  return has_f16c() ? round_by_instruction(source, target, count) : round(source, target, count);
}

HEDDLE_VECTORISED void f32_to_bf16(const float* source, uint16_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = to_bf16(source[i]);
}

HEDDLE_VECTORISED void bf16_to_f32(const uint16_t* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = from_bf16(source[i]);
}

void half_to_f32(ir::DType dtype, const uint16_t* source, float* target, int64_t count) {
  return dtype == ir::DType::kBF16 ? bf16_to_f32(source, target, count) : f16_to_f32(source, target, count);
}

}  // namespace heddle::host
