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

struct Between {  // numbers
  template <class C>
  static HEDDLE_DEVICE C apply(const C* x, const Numbers& number) {
    return *x < C(number.a) ? C(number.a) : *x > C(number.b) ? C(number.b) : *x;
  }
};

// f(the operator of scalar.h that it is).
template <class F>
HEDDLE_DEVICE void as_operator(Act act, F f) {
  switch (act) {
    case Act::kNone:
      return f(Same());
    case Act::kRelu:
      return f(Relu());
    case Act::kGelu:
      return f(Gelu());
    case Act::kGeluTanh:
      return f(GeluTanh());
    case Act::kTanh:
      return f(Tanh());
    case Act::kSigmoid:
      return f(Sigmoid());
    case Act::kSilu:
      return f(Silu());
    case Act::kLeakyRelu:
      return f(LeakyRelu());
    case Act::kHardSigmoid:
      return f(HardSigmoid());
    case Act::kHardSwish:
      return f(HardSwish());
    case Act::kClip:
      return f(Between());
  }
}

template <class C>
HEDDLE_DEVICE C activated(Act act, C x, const Numbers& number) {
  C y = x;
  as_operator(act, [&](auto op) { y = decltype(op)::template apply<C>(&x, number); });
  return y;
}

struct ProductParams {
  uint64_t x = 0, y = 0, out = 0, c = 0, bias = 0, residual = 0;
  Type type = Type::kF32;
  Act act = Act::kNone;
  int32_t y_is_constant = 0;  // no kernel of a graph writes it, copies among them
  Numbers act_numbers;
  Axes batch;
  int64_t x_batch[kAxes] = {}, y_batch[kAxes] = {};
  int64_t batches = 1, m = 0, n = 0, k = 0;
  int64_t x_row = 0, x_column = 0, y_row = 0, y_column = 0, c_row = 0, c_column = 0;
  double alpha = 1, beta = 1;
};

// What follows the sum of products, in the types that have fractions: what is read for it, and all of it.
template <class C>
struct Followers {
  C c, bias, residual;
};
template <class C>
HEDDLE_DEVICE Followers<C> followers_of(const ProductParams& p, Type type, int64_t element, int64_t i,
                                        int64_t j) {
  Followers<C> read{};
  if (p.c != 0) read.c = load<C>(p.c, type, i * p.c_row + j * p.c_column);
  if (p.bias != 0) read.bias = load<C>(p.bias, type, j);
  if (p.residual != 0) read.residual = load<C>(p.residual, type, element);
  return read;
}
template <class C>
HEDDLE_DEVICE C finished(const ProductParams& p, C sum, const Followers<C>& read) {
  sum *= C(p.alpha);
  if (p.c != 0) sum += C(p.beta) * read.c;
  if (p.bias != 0) sum += read.bias;
  sum = activated<C>(p.act, sum, p.act_numbers);
  if (p.residual != 0) sum += read.residual;
  return sum;
}
template <class C>
HEDDLE_DEVICE C finished(const ProductParams& p, Type type, C sum, int64_t element, int64_t i, int64_t j) {
  return finished(p, sum, followers_of<C>(p, type, element, i, j));
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

// What follows the sum, of sums that are in `out`: 16 bytes at a time, where all of it lies so.
struct EndOfProduct {
  static constexpr int kBytes = 16;
  ProductParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    const int each = p.type == Type::kF32 ? 4 : 8;
    const bool whole = p.n % each == 0 && p.c_row % each == 0 && (p.c == 0 || p.c_column == 1) &&
                       (p.out | p.residual | p.bias | p.c) % kBytes == 0;
    if (!whole) return one_by_one(block);
    NarrowFloats::as_type(p.type, [&](auto as) { all<decltype(as)>(block); });
  }

 private:
  template <class Block>
  HEDDLE_DEVICE void one_by_one(Block& block) const {
    each_of(block, p.batches * p.m * p.n, [&](int64_t element) {
      const float sum = load<float>(p.out, p.type, element);
      const int64_t i = element / p.n % p.m, j = element % p.n;
      store<float>(p.out, p.type, element, finished<float>(p, p.type, sum, element, i, j));
    });
  }

  template <class Word, int kCount>
  struct alignas(kBytes) Words {
    Word x[kCount];
  };

  template <class A, class Block>
  HEDDLE_DEVICE void all(Block& block) const {
    using Word = typename A::Word;
    constexpr int kEach = kBytes / sizeof(Word);
    using Some = Words<Word, kEach>;
    const int64_t rows = p.batches * p.m, wide = p.n / kEach;
    const auto at = [](uint64_t data, int64_t element) {
      return data + static_cast<uint64_t>(element) * sizeof(Word);
    };
    each_of(block, rows * wide, [&](int64_t number) {
      const int64_t row = quotient(number, wide);
      const int64_t j = (number - row * wide) * kEach, element = number * kEach;
      // All is read before anything is computed.
      const Some sums = *unshared<const Some>(at(p.out, element));
      Some c{}, bias{}, residual{};
      if (p.c != 0) c = *unshared<const Some>(at(p.c, row % p.m * p.c_row + j));
      if (p.bias != 0) bias = *unshared<const Some>(at(p.bias, j));
      if (p.residual != 0) residual = *unshared<const Some>(at(p.residual, element));
      const auto add = [&](float* x, const Some& words, float factor) {
        HEDDLE_UNROLL
        for (int e = 0; e < kEach; ++e) x[e] += factor * A::template read<float>(words.x[e]);
      };
      float x[kEach];
      HEDDLE_UNROLL
      for (int e = 0; e < kEach; ++e) x[e] = A::template read<float>(sums.x[e]) * float(p.alpha);
      if (p.c != 0) add(x, c, float(p.beta));
      if (p.bias != 0) add(x, bias, 1);
      as_operator(p.act, [&](auto op) {
        HEDDLE_UNROLL
        for (int e = 0; e < kEach; ++e) x[e] = decltype(op)::template apply<float>(x + e, p.act_numbers);
      });
      if (p.residual != 0) add(x, residual, 1);
      Some made;
      HEDDLE_UNROLL
      for (int e = 0; e < kEach; ++e) made.x[e] = A::template write<float>(x[e]);
      *unshared<Some>(at(p.out, element)) = made;
    });
  }
};

}  // namespace heddle::cuda
