// half_panel.h: products of a few rows with a weight of f16 or bf16, without AVX-512.
//
//   What       few_rows_dots() is half_dots() for any processor: no more of the weight is stored as f32 than
//              the innermost cache holds.
//   Invariant  A sum's bits depend on its two rows alone.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

#include "drivers/host/onednn/half_dots.h"

namespace heddle::host {

inline constexpr int64_t kMostRowsOfDots = 8;

void few_rows_dots(ir::DType dtype, const HalfDots<float>& dots);

}  // namespace heddle::host
