// quad.h: four elements in a row, by one access where their address allows it.
#pragma once

#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

inline constexpr int kQuad = 4;

template <class T>
struct alignas(sizeof(T) * kQuad < 16 ? sizeof(T) * kQuad : 16) Quad {
  T x[kQuad];
};

template <class Word>
HEDDLE_DEVICE bool is_one_access(uint64_t data, int64_t first, int64_t end) {
  return first + kQuad <= end && first % kQuad == 0 && data % alignof(Quad<Word>) == 0;
}

// Elements from `first` on; zeros from `end` on.
template <class Types = AllTypes, class C>
HEDDLE_DEVICE void read_quad(uint64_t data, Type type, int64_t first, int64_t end, C* x) {
  Types::as_type(type, [&](auto as) {
    using A = decltype(as);
    using Word = typename A::Word;
    const Word* const from = unshared<const Word>(data);
    if (is_one_access<Word>(data, first, end)) {
      const auto words = *reinterpret_cast<const Quad<Word>*>(from + first);
      for (int e = 0; e < kQuad; ++e) x[e] = A::template read<C>(words.x[e]);
      return;
    }
    for (int e = 0; e < kQuad; ++e) x[e] = first + e < end ? A::template read<C>(from[first + e]) : C(0);
  });
}

template <class Types = AllTypes, class C>
HEDDLE_DEVICE void write_quad(uint64_t data, Type type, int64_t first, int64_t end, const C* x) {
  Types::as_type(type, [&](auto as) {
    using A = decltype(as);
    using Word = typename A::Word;
    Word* const to = unshared<Word>(data);
    if (is_one_access<Word>(data, first, end)) {
      Quad<Word> words;
      for (int e = 0; e < kQuad; ++e) words.x[e] = A::template write<C>(x[e]);
      *reinterpret_cast<Quad<Word>*>(to + first) = words;
      return;
    }
    for (int e = 0; e < kQuad; ++e) {
      if (first + e < end) to[first + e] = A::template write<C>(x[e]);
    }
  });
}

// The words of four narrow floats; those of 16 bits lie in the first two. They are read here and made numbers
// later, so that several reads are under way beside each other.
struct RawQuad {
  uint32_t v[kQuad] = {};
};
HEDDLE_DEVICE RawQuad raw_quad(uint64_t data, Type type, int64_t first, int64_t end) {
  RawQuad raw;
  if (type == Type::kF32) {
    const uint32_t* const from = unshared<const uint32_t>(data);
    if (is_one_access<uint32_t>(data, first, end)) {
      const auto words = *reinterpret_cast<const Quad<uint32_t>*>(from + first);
      HEDDLE_UNROLL
      for (int e = 0; e < kQuad; ++e) raw.v[e] = words.x[e];
      return raw;
    }
    HEDDLE_UNROLL
    for (int e = 0; e < kQuad; ++e) raw.v[e] = first + e < end ? from[first + e] : 0;
    return raw;
  }
  const uint16_t* const from = unshared<const uint16_t>(data);
  if (is_one_access<uint16_t>(data, first, end)) {
    struct alignas(8) Pair {
      uint32_t x[2];
    };
    const auto words = *reinterpret_cast<const Pair*>(from + first);
    raw.v[0] = words.x[0];
    raw.v[1] = words.x[1];
    return raw;
  }
  HEDDLE_UNROLL
  for (int e = 0; e < kQuad; ++e) {
    if (first + e < end) raw.v[e / 2] |= uint32_t{from[first + e]} << (e % 2 * 16);
  }
  return raw;
}

HEDDLE_DEVICE void numbers_of(const RawQuad& raw, Type type, float* x) {
  if (type == Type::kF32) {
    HEDDLE_UNROLL
    for (int e = 0; e < kQuad; ++e) x[e] = bits_as<float>(raw.v[e]);
    return;
  }
  HEDDLE_UNROLL
  for (int e = 0; e < kQuad; ++e) {
    const auto word = static_cast<uint16_t>(raw.v[e / 2] >> (e % 2 * 16));
    x[e] = type == Type::kF16 ? from_f16(word) : from_bf16(word);
  }
}

}  // namespace heddle::cuda
