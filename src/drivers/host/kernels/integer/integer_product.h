// integer_product.h: exact products of matrices of 8-bit integers, carried as 16-bit ones.
//
//   What       product_of_rows(): y[i, j] = sum over k of a[i, k] * b[j, k],
//              in 32 bits, wrapping. Rows lie padded with zeros to a multiple of kIntegerStep.
//   Invariant  |a| and |b| are at most 255, so that no step of the sum overflows. Exact: the result does not
//              depend on how rows are grouped.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

namespace heddle::host {

inline constexpr int64_t kIntegerStep = 32;
inline int64_t padded_row(int64_t k) { return (k + kIntegerStep - 1) / kIntegerStep * kIntegerStep; }

struct RowBlock {
  const int16_t* data;
  int64_t rows;
};

// Both have rows of `length` (padded) elements; y's rows are y_stride apart.
void product_of_rows(RowBlock a, RowBlock b, int64_t length, int32_t* y, int64_t y_stride);

// to[i] = from[i] - point, then zeros up to padded_row(count). `stride` elements from one to the next.
void widen_row(const int8_t* from, int64_t stride, int64_t count, int32_t point, int16_t* to);
void widen_row(const uint8_t* from, int64_t stride, int64_t count, int32_t point, int16_t* to);

int32_t sum_of_row(const int16_t* row, int64_t length);

}  // namespace heddle::host
