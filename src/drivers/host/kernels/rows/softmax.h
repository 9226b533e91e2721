// softmax.h: the exponential and Softmax over rows, for the Softmax steps and for attention.
//
//   What       One pass for the maximum, one for the exponentials and their sum, one to scale.
//   Invariant  A NaN, or a +inf, makes its whole row NaN. A row's bits depend on that row only. What a row of
//              -inf alone becomes is the caller's choice: zeros for attention (nothing to attend to), NaN as
//              Softmax defines it.
//   Threads    Pure functions over the caller's memory.
#pragma once

#include <cstdint>

namespace heddle::host {

void softmax_rows(float* rows, int64_t count, int64_t length,
                  int64_t stride);  // in place; stride: elements from row to row
// The same into rows of bf16; `rows` is written too.
void softmax_rows_bf16(float* rows, uint16_t* shares, int64_t count, int64_t length);
void exp_block(const float* x, float* y, int64_t count);  // y may be x

// One row, NaN where all is -inf; y may be x.
void softmax_row(const float* x, float* y, int64_t length);
void softmax_row(const double* x, double* y, int64_t length);
void log_softmax_row(const float* x, float* y, int64_t length);
void log_softmax_row(const double* x, double* y, int64_t length);

}  // namespace heddle::host
