// half_dots.h: products of a few rows with a weight [columns, depth] of f16 or bf16, by AVX-512.
//
//   What       y = x @ w' + bias. A row of the weight is read from memory once, in order, while the next ones
//              are fetched; oneDNN would lay such a weight out anew first. With x in f32 the weight becomes
//              f32 in registers; x in bf16 is multiplied by the processor's instruction for pairs.
//   Invariant  A sum's bits depend on its two rows alone. With x in bf16 denormals count as 0.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

#include "ir/tensor_type.h"

namespace heddle::host {

inline constexpr int64_t kMostRowsOfHalfDots = 16, kMostRowsOfBf16Dots = 32;

template <class X>
struct HalfDots {
  int64_t rows, depth, columns;
  const X* x;         // [rows, depth]
  const uint16_t* w;  // [columns, depth]
  const float* bias;  // [columns], or null
  float* y;           // [rows, columns] with y_stride between rows
  int64_t y_stride;
};

// The processor has AVX-512, and AVX512-BF16, and oneDNN is not told to do without.
bool has_half_dots();
bool has_bf16_dots();
void half_dots(ir::DType weight, const HalfDots<float>& dots);  // only with the first
void bf16_dots(const HalfDots<uint16_t>& dots);                 // only with both

}  // namespace heddle::host
