#include "drivers/host/kernels/elementwise/narrow.h"

#include "drivers/host/kernels/elementwise/half.h"

namespace heddle::host {

HEDDLE_VECTORISED void f32_to_f16(const float* source, uint16_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = to_f16(source[i]);
}

HEDDLE_VECTORISED void f32_to_bf16(const float* source, uint16_t* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = to_bf16(source[i]);
}

HEDDLE_VECTORISED void f16_to_f32(const uint16_t* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = from_f16(source[i]);
}

HEDDLE_VECTORISED void bf16_to_f32(const uint16_t* source, float* target, int64_t count) {
  for (int64_t i = 0; i < count; ++i) target[i] = from_bf16(source[i]);
}

}  // namespace heddle::host
