// product.h: products of matrices of f64 and integers, one element a thread; tiled_product.h has the others.
//
//   What       out[b, i, j] = activation(alpha * sum_k x[b, i, k] y[b, k, j] + beta * c[i, j] + bias[j]) +
//              residual[b, i, j]; what is absent has address 0.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/scalar.h"
#include "drivers/cuda/kernels/walk.h"

namespace heddle::cuda {

enum class Act : int32_t {  // as ir::ActivationKind, which products.cpp compares
  kNone,
  kRelu,
  kGelu,
  kGeluTanh,
  kTanh,
  kSigmoid,
  kSilu,
  kLeakyRelu,
  kHardSigmoid,
  kHardSwish,
  kClip,
};

template <class C>
HEDDLE_DEVICE C activated(Act act, C x, const Numbers& number) {
  switch (act) {
    case Act::kNone:
      return x;
    case Act::kRelu:
      return Relu::apply<C>(&x, number);
    case Act::kGelu:
      return Gelu::apply<C>(&x, number);
    case Act::kGeluTanh:
      return GeluTanh::apply<C>(&x, number);
    case Act::kTanh:
      return Tanh::apply<C>(&x, number);
    case Act::kSigmoid:
      return Sigmoid::apply<C>(&x, number);
    case Act::kSilu:
      return Silu::apply<C>(&x, number);
    case Act::kLeakyRelu:
      return LeakyRelu::apply<C>(&x, number);
    case Act::kHardSigmoid:
      return HardSigmoid::apply<C>(&x, number);
    case Act::kHardSwish:
      return HardSwish::apply<C>(&x, number);
    case Act::kClip:
      return x < C(number.a) ? C(number.a) : x > C(number.b) ? C(number.b) : x;
  }
  return x;
}

struct ProductParams {
  uint64_t x = 0, y = 0, out = 0, c = 0, bias = 0, residual = 0;
  Type type = Type::kF32;
  Act act = Act::kNone;
  Numbers act_numbers;
  Axes batch;
  int64_t x_batch[kAxes] = {}, y_batch[kAxes] = {};
  int64_t batches = 1, m = 0, n = 0, k = 0;
  int64_t x_row = 0, x_column = 0, y_row = 0, y_column = 0, c_row = 0, c_column = 0;
  double alpha = 1, beta = 1;
};

// What follows the sum of products, in the types that have fractions.
template <class C>
HEDDLE_DEVICE C finished(const ProductParams& p, Type type, C sum, int64_t element, int64_t i, int64_t j) {
  sum *= C(p.alpha);
  if (p.c != 0) sum += C(p.beta) * load<C>(p.c, type, i * p.c_row + j * p.c_column);
  if (p.bias != 0) sum += load<C>(p.bias, type, j);
  sum = activated<C>(p.act, sum, p.act_numbers);
  if (p.residual != 0) sum += load<C>(p.residual, type, element);
  return sum;
}

// C is double, or uint64_t, which wraps.
template <class C>
struct Product {
  ProductParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.batches * p.m * p.n, [&](int64_t element) {
      const int64_t j = element % p.n, i = element / p.n % p.m;
      int64_t x = i * p.x_row, y = j * p.y_column;
      places_of(p.batch, element / p.n / p.m, [&](int axis, int64_t place) {
        x += place * p.x_batch[axis];
        y += place * p.y_batch[axis];
      });
      C sum = 0;
      for (int64_t k = 0; k < p.k; ++k)
        sum += load<C>(p.x, p.type, x + k * p.x_column) * load<C>(p.y, p.type, y + k * p.y_row);
      if constexpr (std::is_floating_point_v<C>) sum = finished<C>(p, p.type, sum, element, i, j);
      store<C>(p.out, p.type, element, sum);
    });
  }
};

// What follows the sum, of sums that are in `out`.
struct EndOfProduct {
  ProductParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    each_of(block, p.batches * p.m * p.n, [&](int64_t element) {
      const float sum = load<float>(p.out, p.type, element);
      const int64_t i = element / p.n % p.m, j = element % p.n;
      store<float>(p.out, p.type, element, finished<float>(p, p.type, sum, element, i, j));
    });
  }
};

}  // namespace heddle::cuda
