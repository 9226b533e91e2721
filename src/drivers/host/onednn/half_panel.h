// half_panel.h: pieces of a weight in f16 or bf16, as f32 and in sums.
//
//   What       half_to_f32() converts, a NaN to some NaN, by the processor's instruction where it has one for
//              f16. few_rows_dots() is half_dots() without AVX-512: no more of the weight is stored as f32
//              than the innermost cache holds.
//   Invariant  A sum's bits depend on its two rows alone.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

#include "drivers/host/onednn/half_dots.h"

namespace heddle::host {

void half_to_f32(ir::DType dtype, const uint16_t* from, float* to, int64_t count);

inline constexpr int64_t kMostRowsOfDots = 8;

void few_rows_dots(ir::DType dtype, const HalfDots<float>& dots);

}  // namespace heddle::host
