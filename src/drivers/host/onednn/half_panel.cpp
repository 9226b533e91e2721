#include "drivers/host/onednn/half_panel.h"

#include <algorithm>
#include <array>

#include "drivers/host/kernels/elementwise/narrow.h"
#include "drivers/host/kernels/elementwise/vectorised.h"

namespace heddle::host {
namespace {

constexpr int64_t kTogether = 4;  // columns: as many sums go on at once, which hides an addition's latency
constexpr int64_t kChunk = 512;   // floats of each

using Sums = std::array<float, kTogether>;

// Of x with the columns of `w`, which lie kChunk apart.
HEDDLE_VECTORISED void add_dots(const float* x, const float* w, int64_t count, float* sums) {
  float a = 0, b = 0, c = 0, d = 0;
#pragma omp simd reduction(+ : a, b, c, d)
  for (int64_t i = 0; i < count; ++i) {
    a += x[i] * w[i];
    b += x[i] * w[i + kChunk];
    c += x[i] * w[i + 2 * kChunk];
    d += x[i] * w[i + 3 * kChunk];
  }
  sums[0] += a;
  sums[1] += b;
  sums[2] += c;
  sums[3] += d;
}

}  // namespace

void few_rows_dots(ir::DType dtype, const HalfDots<float>& dots) {
  alignas(64) std::array<float, kTogether * kChunk> panel;
  std::array<Sums, kMostRowsOfDots> sums;
  for (int64_t column = 0; column < dots.columns; column += kTogether) {
    const int64_t columns = std::min(kTogether, dots.columns - column);
    if (columns < kTogether) panel.fill(0);
    std::ranges::fill(sums, Sums{});
    for (int64_t at = 0; at < dots.depth; at += kChunk) {
      const int64_t count = std::min(kChunk, dots.depth - at);
      for (int64_t i = 0; i < columns; ++i)
        half_to_f32(dtype, dots.w + (column + i) * dots.depth + at, panel.data() + i * kChunk, count);
      for (int64_t row = 0; row < dots.rows; ++row)
        add_dots(dots.x + row * dots.depth + at, panel.data(), count, sums[static_cast<size_t>(row)].data());
    }
    for (int64_t row = 0; row < dots.rows; ++row) {
      for (int64_t i = 0; i < columns; ++i) {
        dots.y[row * dots.y_stride + column + i] = sums[static_cast<size_t>(row)][static_cast<size_t>(i)] +
                                                   (dots.bias == nullptr ? 0 : dots.bias[column + i]);
      }
    }
  }
}

}  // namespace heddle::host
