// narrow.h: runs of f32 to sixteen-bit floats and back.
//
//   What       The same roundings as ir/dtype.h, a NaN to some NaN; vectorised (half.h), or by the
//              processor's instructions where it has them for f16.
//   Invariant  An element's bits depend neither on its place nor on count.
//   Threads    Pure functions over the caller's memory. Source and target do not overlap, but for
//              round_to_f16(), where they may be the same.
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace heddle::host {

void f32_to_f16(const float* source, uint16_t* target, int64_t count);
void f32_to_bf16(const float* source, uint16_t* target, int64_t count);
void f16_to_f32(const uint16_t* source, float* target, int64_t count);
void bf16_to_f32(const uint16_t* source, float* target, int64_t count);
void round_to_f16(const float* source, float* target, int64_t count);
void half_to_f32(ir::DType dtype, const uint16_t* source, float* target, int64_t count);

}  // namespace heddle::host
