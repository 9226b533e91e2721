// half_panel.h: pieces of a weight in f16 or bf16, as f32 and in sums.
//
//   What       half_to_f32() converts, a NaN to some NaN, by the processor's instruction where it has one for
//              f16. few_rows_dots() sums the products of a few rows with rows of the weight without storing
//              more of it as f32 than the innermost cache holds.
//   Invariant  A sum's bits depend on its two rows alone.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

#include "ir/tensor_type.h"

namespace heddle::host {

void half_to_f32(ir::DType dtype, const uint16_t* from, float* to, int64_t count);

inline constexpr int64_t kMostRowsOfDots = 8;

struct FewRowsDots {
  int64_t rows, depth, columns;
  const float* x;     // [rows, depth]
  const uint16_t* w;  // [columns, depth]
  const float* bias;  // [columns], or null
  float* y;           // [rows, columns] with y_stride between rows
  int64_t y_stride;
};
void few_rows_dots(ir::DType dtype, const FewRowsDots& dots);

}  // namespace heddle::host
