// product.h: products of matrices of f64 and integers, one element a thread, and what follows any product.
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

// What follows sums of a row that lie beside each other, 16 bytes of them, in numbers of type A: read and
// written at once.
template <class A>
struct EndOfSome {
  using Word = typename A::Word;
  static constexpr int kBytes = 16, kEach = kBytes / static_cast<int>(sizeof(Word));
  struct alignas(kBytes) Some {
    Word x[kEach];
  };

  static HEDDLE_DEVICE uint64_t at(uint64_t data, int64_t element) {
    return data + static_cast<uint64_t>(element) * sizeof(Word);
  }
  static HEDDLE_DEVICE float as_float(Word word) { return A::template read<float>(word); }
  static HEDDLE_DEVICE Some read(uint64_t data, int64_t element) {
    return *unshared<const Some>(at(data, element));
  }

  // `sums` from `element` on, the one of row i and column j.
  static HEDDLE_DEVICE void finish(const ProductParams& p, const float* sums, int64_t element, int64_t i,
                                   int64_t j) {
    // All is read before anything is computed.
    Some c{}, bias{}, residual{};
    if (p.c != 0) c = read(p.c, i * p.c_row + j);
    if (p.bias != 0) bias = read(p.bias, j);
    if (p.residual != 0) residual = read(p.residual, element);
    float x[kEach];
    HEDDLE_UNROLL
    for (int e = 0; e < kEach; ++e) x[e] = sums[e] * float(p.alpha);
    const auto add = [&](const Some& words, float factor) {
      HEDDLE_UNROLL
      for (int e = 0; e < kEach; ++e) x[e] += factor * as_float(words.x[e]);
    };
    if (p.c != 0) add(c, float(p.beta));
    if (p.bias != 0) add(bias, 1);
    as_operator(p.act, [&](auto op) {
      HEDDLE_UNROLL
      for (int e = 0; e < kEach; ++e) x[e] = decltype(op)::template apply<float>(x + e, p.act_numbers);
    });
    if (p.residual != 0) add(residual, 1);
    Some made;
    HEDDLE_UNROLL
    for (int e = 0; e < kEach; ++e) made.x[e] = A::template write<float>(x[e]);
    *unshared<Some>(at(p.out, element)) = made;
  }
};

// All that follows lies so, `each` elements at a time.
HEDDLE_DEVICE bool ends_in_some(const ProductParams& p, int each) {
  return p.n % each == 0 && p.c_row % each == 0 && (p.c == 0 || p.c_column == 1) &&
         (p.out | p.residual | p.bias | p.c) % EndOfSome<As<float>>::kBytes == 0;
}

// What follows the sum, of sums that are in `out`.
struct EndOfProduct {
  static constexpr int kBytes = EndOfSome<As<float>>::kBytes;
  ProductParams p;

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    if (!ends_in_some(p, p.type == Type::kF32 ? 4 : 8)) return one_by_one(block);
    NarrowFloats::as_type(p.type, [&](auto as) { all<EndOfSome<decltype(as)>>(block); });
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

  template <class End, class Block>
  HEDDLE_DEVICE void all(Block& block) const {
    constexpr int kEach = End::kEach;
    const int64_t rows = p.batches * p.m, wide = p.n / kEach;
    each_of(block, rows * wide, [&](int64_t number) {
      const int64_t row = quotient(number, wide), element = number * kEach;
      const auto found = End::read(p.out, element);
      float sums[kEach];
      HEDDLE_UNROLL
      for (int e = 0; e < kEach; ++e) sums[e] = End::as_float(found.x[e]);
      End::finish(p, sums, element, row % p.m, (number - row * wide) * kEach);
    });
  }
};

}  // namespace heddle::cuda
