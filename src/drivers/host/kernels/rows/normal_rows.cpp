#include "drivers/host/kernels/rows/normal_rows.h"

#include <algorithm>

#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {

namespace {

constexpr int64_t kSummed = 1024;  // elements per total in the row's own precision

template <class T>
HEDDLE_INLINE double sum(const T* x, int64_t length) {
  double total = 0;
  for (int64_t begin = 0; begin < length; begin += kSummed) {
    const int64_t end = std::min(length, begin + kSummed);
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) part += x[i];
    total += static_cast<double>(part);
  }
  return total;
}

template <class T>
HEDDLE_INLINE double sum_of_squares(const T* x, int64_t length, T centre) {
  double total = 0;
  for (int64_t begin = 0; begin < length; begin += kSummed) {
    const int64_t end = std::min(length, begin + kSummed);
    T part = 0;
#pragma omp simd reduction(+ : part)
    for (int64_t i = begin; i < end; ++i) part += (x[i] - centre) * (x[i] - centre);
    total += static_cast<double>(part);
  }
  return total;
}

template <class T>
HEDDLE_INLINE Moments moments(const T* x, int64_t length) {
  const double count = static_cast<double>(length);
  const double mean = sum(x, length) / count;
  return {mean, sum_of_squares(x, length, static_cast<T>(mean)) / count};
}

template <class T>
HEDDLE_INLINE void scaled(const T* x, T* y, int64_t length, T mean, T factor, const T* scale, const T* bias) {
  if (bias == nullptr) {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) * factor * scale[i];
  } else {
#pragma omp simd
    for (int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) * factor * scale[i] + bias[i];
  }
}

template <class T>
HEDDLE_INLINE void shifted(const T* x, T* y, int64_t length, T mean, T factor, T shift) {
#pragma omp simd
  for (int64_t i = 0; i < length; ++i) y[i] = (x[i] - mean) * factor + shift;
}

}  // namespace

HEDDLE_VECTORISED Moments moments_of(const float* x, int64_t length) { return moments(x, length); }
HEDDLE_VECTORISED Moments moments_of(const double* x, int64_t length) { return moments(x, length); }

HEDDLE_VECTORISED double mean_square_of(const float* x, int64_t length) {
  return sum_of_squares(x, length, 0.0f) / static_cast<double>(length);
}
HEDDLE_VECTORISED double mean_square_of(const double* x, int64_t length) {
  return sum_of_squares(x, length, 0.0) / static_cast<double>(length);
}

HEDDLE_VECTORISED void scale_row(const float* x, float* y, int64_t length, double mean, double factor,
                                 const float* scale, const float* bias) {
  scaled(x, y, length, static_cast<float>(mean), static_cast<float>(factor), scale, bias);
}
HEDDLE_VECTORISED void scale_row(const double* x, double* y, int64_t length, double mean, double factor,
                                 const double* scale, const double* bias) {
  scaled(x, y, length, mean, factor, scale, bias);
}

HEDDLE_VECTORISED void shift_row(const float* x, float* y, int64_t length, double mean, double factor,
                                 double shift) {
  shifted(x, y, length, static_cast<float>(mean), static_cast<float>(factor), static_cast<float>(shift));
}
HEDDLE_VECTORISED void shift_row(const double* x, double* y, int64_t length, double mean, double factor,
                                 double shift) {
  shifted(x, y, length, mean, factor, shift);
}

}  // namespace heddle::host
