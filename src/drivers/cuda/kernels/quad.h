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
    const Word* const from = global<const Word>(data);
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
    Word* const to = global<Word>(data);
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

}  // namespace heddle::cuda
