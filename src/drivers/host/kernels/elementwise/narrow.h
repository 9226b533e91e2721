// narrow.h: runs of f32 to sixteen-bit floats and back.
//
//   What       The same roundings as ir/dtype.h (half.h), vectorised.
//   Threads    Pure functions over the caller's memory; source and target do not overlap.
#pragma once

#include <cstdint>

namespace heddle::host {

void f32_to_f16(const float* source, uint16_t* target, int64_t count);
void f32_to_bf16(const float* source, uint16_t* target, int64_t count);
void f16_to_f32(const uint16_t* source, float* target, int64_t count);
void bf16_to_f32(const uint16_t* source, float* target, int64_t count);

}  // namespace heddle::host
