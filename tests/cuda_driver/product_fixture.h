// product_fixture.h: products of f32 for tests of kernels alone, and their values in f64.
//
//   Threads    One.
#pragma once

#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "drivers/cuda/kernels/product.h"
#include "drivers/cuda/kernels/tile.h"

namespace heddle::cuda {

// Random numbers, the first of them `first` elements after a multiple of 16 bytes.
class FloatMatrix {
 public:
  FloatMatrix(int64_t count, int64_t first, uint32_t seed)
      : first_(static_cast<size_t>(first)), quads_(static_cast<size_t>(count + first) / 4 + 1) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (int64_t i = 0; i < count; ++i) data()[i] = normal(random);
  }
  float* data() { return quads_.data()->v + first_; }
  uint64_t at() { return reinterpret_cast<uint64_t>(data()); }

 private:
  size_t first_;
  std::vector<Four<float>> quads_;
};

struct FloatProduct {
  int64_t m, n, k;
  bool turned = false;  // the columns of y lie one behind the other
  Act act = Act::kNone;
  bool c = false, bias = false, residual = false;
  int64_t first = 0;  // where operands lie, in elements behind a multiple of 16 bytes
};

struct FloatOperands {
  explicit FloatOperands(const FloatProduct& q)
      : x(q.m * q.k, q.first, 1),
        y(q.k * q.n, q.first, 2),
        c(q.m * q.n, q.first, 3),
        bias(q.n, q.first, 4),
        residual(q.m * q.n, q.first, 5) {}
  FloatMatrix x, y, c, bias, residual;
};

inline ProductParams params_of_product(const FloatProduct& q, FloatOperands& from, float* out) {
  ProductParams p;
  p.act = q.act;
  p.act_numbers = {0.25, 1.5};
  p.m = q.m;
  p.n = q.n;
  p.k = q.k;
  p.x_row = q.k;
  p.x_column = 1;
  p.y_row = q.turned ? 1 : q.n;
  p.y_column = q.turned ? q.k : 1;
  p.c_row = q.n;
  p.c_column = 1;
  p.alpha = q.c ? 0.75 : 1;
  p.beta = -0.5;
  p.x = from.x.at();
  p.y = from.y.at();
  p.c = q.c ? from.c.at() : 0;
  p.bias = q.bias ? from.bias.at() : 0;
  p.residual = q.residual ? from.residual.at() : 0;
  p.out = reinterpret_cast<uint64_t>(out);
  return p;
}

inline double wanted_of(const FloatProduct& q, FloatOperands& from, int64_t i, int64_t j) {
  double sum = 0;
  for (int64_t k = 0; k < q.k; ++k)
    sum += double{from.x.data()[i * q.k + k]} * from.y.data()[q.turned ? j * q.k + k : k * q.n + j];
  if (q.c) sum = 0.75 * sum - 0.5 * double{from.c.data()[i * q.n + j]};
  if (q.bias) sum += from.bias.data()[j];
  sum = activated<double>(q.act, sum, {0.25, 1.5});
  return q.residual ? sum + from.residual.data()[i * q.n + j] : sum;
}

// How many values are not the reference's, as products in f32 give it.
inline int64_t count_wrong(const FloatProduct& q, FloatOperands& from, const std::vector<float>& got) {
  int64_t wrong = 0;
  for (int64_t e = 0; e < q.m * q.n; ++e) {
    const double exact = wanted_of(q, from, e / q.n, e % q.n);
    const double close = 1e-6 * (4 + std::sqrt(double(q.k))) * (1 + std::fabs(exact));
    wrong += std::fabs(double{got[static_cast<size_t>(e)]} - exact) <= close ? 0 : 1;
  }
  return wrong;
}

inline bool same_floats(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace heddle::cuda
