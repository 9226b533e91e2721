// normal_rows.h: normalisation of one row, in as few passes over the cached row as the arithmetic allows.
//
//   What       Mean and variance by two passes, sums in blocks whose totals are added in double.
//   Threads    Pure functions over the caller's memory; y may be x.
#pragma once

#include <cstdint>

namespace heddle::host {

struct Moments {
  double mean;
  double variance;
};
Moments moments_of(const float* x, int64_t length);
Moments moments_of(const double* x, int64_t length);
double mean_square_of(const float* x, int64_t length);
double mean_square_of(const double* x, int64_t length);

// y = (x - mean) * factor * scale + bias; bias may be null.
void scale_row(const float* x, float* y, int64_t length, double mean, double factor, const float* scale,
               const float* bias);
void scale_row(const double* x, double* y, int64_t length, double mean, double factor, const double* scale,
               const double* bias);
// y = (x - mean) * factor + shift.
void shift_row(const float* x, float* y, int64_t length, double mean, double factor, double shift);
void shift_row(const double* x, double* y, int64_t length, double mean, double factor, double shift);

}  // namespace heddle::host
