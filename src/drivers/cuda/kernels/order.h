// order.h: where the extreme along an axis is, and the greatest or least elements in their order. A block
// takes one row after another; element `a` of row (o, i) lies at (o * extent + a) * inner + i.
#pragma once

#include "drivers/cuda/kernels/block.h"
#include "drivers/cuda/kernels/element.h"

namespace heddle::cuda {

// NaN counts as the greatest.
template <class C>
HEDDLE_DEVICE bool exceeds(C a, C b) {
  return a != a ? b == b : a > b;
}

struct ArgExtremeParams {
  uint64_t in = 0, out = 0;
  Type type = Type::kF32;
  int32_t least = 0, last = 0;  // of equal ones: the last
  int64_t rows = 0, extent = 0, inner = 1;
};

template <class C>
struct ArgExtreme {
  ArgExtremeParams p;

  struct Found {
    C value;
    int64_t place;  // -1: none yet
  };
  HEDDLE_DEVICE Found better(const Found& a, const Found& b) const {
    if (a.place < 0 || b.place < 0) return a.place < 0 ? b : a;
    if (exceeds(a.value, b.value)) return p.least == 0 ? a : b;
    if (exceeds(b.value, a.value)) return p.least == 0 ? b : a;
    return (a.place < b.place) == (p.last == 0) ? a : b;
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    Found* const found = block.template shared<Found>(block.threads());
    for (int64_t row = block.index(); row < p.rows; row += block.blocks()) {
      const int64_t begin = row / p.inner * p.extent * p.inner + row % p.inner;
      block.each([&](int thread) {
        Found best{C(0), -1};
        for (int64_t a = thread; a < p.extent; a += block.threads())
          best = better(best, {load<C>(p.in, p.type, begin + a * p.inner), a});
        found[thread] = best;
      });
      combine_all(block, found, [&](const Found& a, const Found& b) { return better(a, b); });
      block.each([&](int thread) {
        if (thread == 0) store<int64_t>(p.out, Type::kI64, row, found[0].place);
      });
    }
  }
};

// Threads of a block come to it in any order.
HEDDLE_DEVICE int add_shared(int* to, int value) {
#if defined(__CUDA_ARCH__)
  return atomicAdd(to, value);
#else
  const int before = *to;
  *to += value;
  return before;
#endif
}

struct TopKParams {
  uint64_t in = 0, values = 0, places = 0;  // values, places 0: not wanted
  uint64_t keys = 0, indices = 0;           // of each block's chosen ones; 0: in memory of the block
  Type type = Type::kF32;
  int32_t least = 0;
  int64_t rows = 0, extent = 0, inner = 1;  // extent below 2^32
  int32_t count = 0, padded = 1;            // chosen of a row, and the next power of two
};

// Elements are compared by keys: unsigned numbers in the order of the elements. Of equal ones the lower index
// is the greater, so no two are the same.
//   1. Digit by digit of key and index: the least one that is chosen.
//   2. All from it on are gathered, in any order, and sorted.
template <class C>
struct TopK {
  using Key = std::conditional_t<sizeof(C) == 4, uint32_t, uint64_t>;
  static constexpr int kKeyDigits = sizeof(Key), kDigits = kKeyDigits + 4, kBuckets = 256;
  TopKParams p;

  struct Item {
    Key key;
    uint32_t from_end;  // ~index
  };
  // What is chosen: from `least` on, as far as its first digits tell, and `missing` of those that begin so.
  struct Bound {
    Item least, mask;
    int missing;
  };

  HEDDLE_DEVICE Item item(int64_t begin, int64_t a) const {
    const C x = load<C>(p.in, p.type, begin + a * p.inner);
    constexpr Key kTop = Key(1) << (8 * sizeof(Key) - 1);
    Key key;
    if constexpr (std::is_floating_point_v<C>) {
      const Key bits = bits_as<Key>(x == 0 ? C(0) : x);
      key = x != x ? ~Key(0) : (bits & kTop) != 0 ? ~bits : bits | kTop;
    } else {
      key = std::is_signed_v<C> ? Key(x) ^ kTop : Key(x);
    }
    return {p.least != 0 ? Key(~key) : key, ~static_cast<uint32_t>(a)};
  }
  static HEDDLE_DEVICE bool exceeds_item(const Item& a, const Item& b) {
    return a.key != b.key ? a.key > b.key : a.from_end > b.from_end;
  }
  static HEDDLE_DEVICE int digit(const Item& x, int number) {
    return number < kKeyDigits ? static_cast<int>(x.key >> (8 * (kKeyDigits - 1 - number)) & 255u)
                               : static_cast<int>(x.from_end >> (8 * (kDigits - 1 - number)) & 255u);
  }
  static HEDDLE_DEVICE void set_digit(Item& x, int number, int value) {
    if (number < kKeyDigits) {
      x.key |= Key(value) << (8 * (kKeyDigits - 1 - number));
    } else {
      x.from_end |= static_cast<uint32_t>(value) << (8 * (kDigits - 1 - number));
    }
  }

  // counts[b]: how many have digit b or a greater one. Returns where they are: one of the two.
  template <class Block>
  HEDDLE_DEVICE int* sum_from_end(Block& block, int* counts, int* other) const {
    for (int step = 1; step < kBuckets; step *= 2) {
      block.each([&](int thread) {
        for (int b = thread; b < kBuckets; b += block.threads())
          other[b] = counts[b] + (b + step < kBuckets ? counts[b + step] : 0);
      });
      int* const made = other;
      other = counts;
      counts = made;
    }
    return counts;
  }

  template <class Block>
  HEDDLE_DEVICE void find_bound(Block& block, int64_t begin, int* counts, int* other, Bound* bound) const {
    block.each([&](int thread) {
      if (thread == 0) *bound = {{0, 0}, {0, 0}, p.count};
    });
    for (int number = 0; number < kDigits && bound->missing > 0; ++number) {
      block.each([&](int thread) {
        for (int b = thread; b < kBuckets; b += block.threads()) counts[b] = 0;
      });
      block.each([&](int thread) {
        const Bound known = *bound;
        for (int64_t a = thread; a < p.extent; a += block.threads()) {
          const Item x = item(begin, a);
          const bool same = (x.key & known.mask.key) == known.least.key &&
                            (x.from_end & known.mask.from_end) == known.least.from_end;
          if (same) add_shared(&counts[digit(x, number)], 1);
        }
      });
      const int* const sums = sum_from_end(block, counts, other);
      typename Block::template Own<int> missing(block);
      block.each([&](int thread) { missing[thread] = bound->missing; });
      block.each([&](int thread) {
        for (int b = thread; b < kBuckets; b += block.threads()) {
          const int above = b + 1 < kBuckets ? sums[b + 1] : 0, wanted = missing[thread];
          if (above >= wanted || sums[b] < wanted) continue;
          set_digit(bound->least, number, b);
          set_digit(bound->mask, number, 255);
          bound->missing = sums[b] == wanted ? 0 : wanted - above;  // 0: all that begin so are chosen
        }
      });
    }
  }

  // The greatest first.
  template <class Block>
  HEDDLE_DEVICE void sort(Block& block, Key* keys, uint32_t* indices) const {
    for (int size = 2; size <= p.padded; size *= 2) {
      for (int step = size / 2; step > 0; step /= 2) {
        block.each([&](int thread) {
          for (int pair = thread; pair < p.padded / 2; pair += block.threads()) {
            const int low = pair / step * 2 * step + pair % step, high = low + step;
            const Item a{keys[low], ~indices[low]}, b{keys[high], ~indices[high]};
            if (((low & size) == 0) != exceeds_item(b, a)) continue;
            keys[low] = b.key;
            keys[high] = a.key;
            indices[low] = ~b.from_end;
            indices[high] = ~a.from_end;
          }
        });
      }
    }
  }

  template <class Block>
  HEDDLE_DEVICE void operator()(Block& block) const {
    int* const counts = block.template shared<int>(kBuckets);
    int* const other = block.template shared<int>(kBuckets);
    Bound* const bound = block.template shared<Bound>(1);
    int* const gathered = block.template shared<int>(1);
    Key* const keys =
        p.keys != 0 ? global<Key>(p.keys) + block.index() * p.padded : block.template shared<Key>(p.padded);
    uint32_t* const indices = p.keys != 0 ? global<uint32_t>(p.indices) + block.index() * p.padded
                                          : block.template shared<uint32_t>(p.padded);
    for (int64_t row = block.index(); row < p.rows; row += block.blocks()) {
      const int64_t begin = row / p.inner * p.extent * p.inner + row % p.inner;
      find_bound(block, begin, counts, other, bound);
      block.each([&](int thread) {
        if (thread == 0) *gathered = 0;
        for (int i = p.count + thread; i < p.padded; i += block.threads()) {
          keys[i] = 0;
          indices[i] = ~0u;
        }
      });
      block.each([&](int thread) {
        const Item least = bound->least;
        for (int64_t a = thread; a < p.extent; a += block.threads()) {
          const Item x = item(begin, a);
          if (exceeds_item(least, x)) continue;
          const int at = add_shared(gathered, 1);
          keys[at] = x.key;
          indices[at] = static_cast<uint32_t>(a);
        }
      });
      sort(block, keys, indices);
      block.each([&](int thread) {
        for (int n = thread; n < p.count; n += block.threads()) {
          const int64_t at = (row / p.inner * p.count + n) * p.inner + row % p.inner, a = indices[n];
          if (p.values != 0) store<C>(p.values, p.type, at, load<C>(p.in, p.type, begin + a * p.inner));
          if (p.places != 0) store<int64_t>(p.places, Type::kI64, at, a);
        }
      });
    }
  }
};

}  // namespace heddle::cuda
