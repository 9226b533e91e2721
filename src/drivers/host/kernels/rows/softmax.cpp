#include "drivers/host/kernels/rows/softmax.h"

#include <cmath>
#include <limits>

#include "drivers/host/kernels/elementwise/half.h"
#include "drivers/host/kernels/elementwise/vector_math.h"

namespace heddle::host {

namespace {

HEDDLE_INLINE float exp_of(float x) { return vexp_negative(x); }
HEDDLE_INLINE double exp_of(double x) { return std::exp(x); }
HEDDLE_INLINE float log_of(float x) { return vlog(x); }
HEDDLE_INLINE double log_of(double x) { return std::log(x); }

template <class T>
HEDDLE_INLINE T greatest(const T* x, int64_t length) {
  constexpr T kLeast = -std::numeric_limits<T>::infinity();
  T most = kLeast;
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < length; ++i) most = x[i] > most ? x[i] : most;
  // Clang's reduction starts at the least finite number, which is above a row of -inf.
  if (most == std::numeric_limits<T>::lowest()) [[unlikely]] {
    most = kLeast;
    for (int64_t i = 0; i < length; ++i) most = x[i] > most ? x[i] : most;
  }
  return most;
}

template <class T>
HEDDLE_INLINE void softmax(const T* x, T* y, int64_t length, T shift) {
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < length; ++i) {
    y[i] = exp_of(x[i] - shift);
    sum += y[i];
  }
  const T scale = sum == 0 ? T(0) : T(1) / sum;
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) y[i] *= scale;
}

template <class T>
HEDDLE_INLINE void log_softmax(const T* x, T* y, int64_t length) {
  const T shift = greatest(x, length);
  T sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < length; ++i) sum += exp_of(x[i] - shift);
  const T log_sum = log_of(sum);
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) y[i] = (x[i] - shift) - log_sum;
}

// Short rows of the usual lengths are unrolled: their loops would cost more than their elements.
template <class T>
HEDDLE_INLINE void softmax_of(const T* x, T* y, int64_t length, bool zeros) {
  const auto run = [&](int64_t n) __attribute__((always_inline)) {
    const T most = greatest(x, n);
    // All are -inf, or NaN: subtracting 0 leaves exp(-inf) = 0 and NaN as they are.
    const bool none = zeros && most == -std::numeric_limits<T>::infinity();
    softmax(x, y, n, none ? T(0) : most);
  };
  switch (length) {
    case 16:
      run(16);
      break;
    case 32:
      run(32);
      break;
    case 64:
      run(64);
      break;
    default:
      run(length);
      break;
  }
}

}  // namespace

HEDDLE_VECTORISED void softmax_rows(float* rows, int64_t count, int64_t length, int64_t stride) {
  for (int64_t r = 0; r < count; ++r) softmax_of(rows + r * stride, rows + r * stride, length, true);
}

HEDDLE_VECTORISED void softmax_rows_bf16(float* rows, uint16_t* shares, int64_t count, int64_t length) {
  for (int64_t r = 0; r < count; ++r) {
    float* row = rows + r * length;
    softmax_of(row, row, length, true);
    for (int64_t i = 0; i < length; ++i) shares[r * length + i] = to_bf16(row[i]);
  }
}

HEDDLE_VECTORISED void softmax_row(const float* x, float* y, int64_t length) {
  softmax_of(x, y, length, false);
}
HEDDLE_VECTORISED void softmax_row(const double* x, double* y, int64_t length) {
  softmax_of(x, y, length, false);
}
HEDDLE_VECTORISED void log_softmax_row(const float* x, float* y, int64_t length) {
  log_softmax(x, y, length);
}
HEDDLE_VECTORISED void log_softmax_row(const double* x, double* y, int64_t length) {
  log_softmax(x, y, length);
}

HEDDLE_VECTORISED void exp_block(const float* x, float* y, int64_t count) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) y[i] = vexp(x[i]);
}

}  // namespace heddle::host
