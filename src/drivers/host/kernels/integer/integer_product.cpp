#include "drivers/host/kernels/integer/integer_product.h"

#include <algorithm>

#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

namespace {

// 255 * 255 * this is below 2^31.
constexpr int64_t kLongest = 32768;
constexpr int64_t kColumns = 4;
// Rows of b that stay in the first-level cache while the rows of a pass.
constexpr int64_t kCached = 16 << 10;

HEDDLE_INLINE int32_t add_wrapping(int32_t a, int32_t b) {
  return static_cast<int32_t>(static_cast<uint32_t>(a) + static_cast<uint32_t>(b));
}

// Two rows of a with four of b: each element that is loaded is used several times.
HEDDLE_INLINE void two_by_four(const int16_t* a, const int16_t* b, int64_t length, int64_t begin, int64_t end,
                               int32_t* y, int64_t y_stride) {
  const int16_t *a0 = a, *a1 = a + length;
  const int16_t *b0 = b, *b1 = b + length, *b2 = b + 2 * length, *b3 = b + 3 * length;
  int32_t s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
#pragma omp simd reduction(+ : s00, s01, s02, s03, s10, s11, s12, s13)
  for (int64_t k = begin; k < end; ++k) {
    s00 += a0[k] * b0[k];
    s01 += a0[k] * b1[k];
    s02 += a0[k] * b2[k];
    s03 += a0[k] * b3[k];
    s10 += a1[k] * b0[k];
    s11 += a1[k] * b1[k];
    s12 += a1[k] * b2[k];
    s13 += a1[k] * b3[k];
  }
  y[0] = add_wrapping(y[0], s00);
  y[1] = add_wrapping(y[1], s01);
  y[2] = add_wrapping(y[2], s02);
  y[3] = add_wrapping(y[3], s03);
  int32_t* below = y + y_stride;
  below[0] = add_wrapping(below[0], s10);
  below[1] = add_wrapping(below[1], s11);
  below[2] = add_wrapping(below[2], s12);
  below[3] = add_wrapping(below[3], s13);
}

HEDDLE_INLINE int32_t one_by_one(const int16_t* a, const int16_t* b, int64_t begin, int64_t end) {
  int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = begin; k < end; ++k) sum += a[k] * b[k];
  return sum;
}

template <class T>
HEDDLE_INLINE void widen(const T* from, int64_t stride, int64_t count, int32_t point, int16_t* to) {
  if (stride == 1) {
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int16_t>(from[i] - point);
  } else {
    for (int64_t i = 0; i < count; ++i) to[i] = static_cast<int16_t>(from[i * stride] - point);
  }
  std::fill(to + count, to + padded_row(count), int16_t{0});
}

}  // namespace

HEDDLE_VECTORISED void product_of_rows(RowBlock a, RowBlock b, int64_t length, int32_t* y, int64_t y_stride) {
  for (int64_t i = 0; i < a.rows; ++i) std::fill(y + i * y_stride, y + i * y_stride + b.rows, 0);
  const int64_t span = std::max(kColumns, kCached / std::max<int64_t>(length, 1) / kColumns * kColumns);
  for (int64_t begin = 0; begin < length; begin += kLongest) {
    const int64_t end = std::min(length, begin + kLongest);
    for (int64_t left = 0; left < b.rows; left += span) {
      const int64_t right = std::min(b.rows, left + span);
      const int64_t whole = left + (right - left) / kColumns * kColumns;
      int64_t i = 0;
      for (; i + 2 <= a.rows; i += 2) {
        for (int64_t j = left; j < whole; j += kColumns)
          two_by_four(a.data + i * length, b.data + j * length, length, begin, end, y + i * y_stride + j,
                      y_stride);
      }
      const int64_t paired = i;
      for (i = 0; i < a.rows; ++i) {
        for (int64_t j = i < paired ? whole : left; j < right; ++j) {
          int32_t& to = y[i * y_stride + j];
          to = add_wrapping(to, one_by_one(a.data + i * length, b.data + j * length, begin, end));
        }
      }
    }
  }
}

HEDDLE_VECTORISED void widen_row(const int8_t* from, int64_t stride, int64_t count, int32_t point,
                                 int16_t* to) {
  widen(from, stride, count, point, to);
}
HEDDLE_VECTORISED void widen_row(const uint8_t* from, int64_t stride, int64_t count, int32_t point,
                                 int16_t* to) {
  widen(from, stride, count, point, to);
}

HEDDLE_VECTORISED int32_t sum_of_row(const int16_t* row, int64_t length) {
  int32_t sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t k = 0; k < length; ++k) sum += row[k];
  return sum;
}

}  // namespace heddle::host
