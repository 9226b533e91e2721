// size_class.h: which sizes of memory there are.
//
//   What       Steps of 64 B to 1 KiB (16 classes), then four per doubling to 1 MiB (40 classes): at most a
//              quarter is lost. Larger sizes are multiples of 64 KiB and have no class: at most a sixteenth
//              is lost.
//   Threads    Pure functions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace heddle::runtime::size_class {

inline constexpr uint64_t kSmallMax = uint64_t{1} << 20;
inline constexpr size_t kClasses = 56;

constexpr uint64_t up_to_multiple(uint64_t bytes, uint64_t unit) {  // unit is a power of two; saturates
  const uint64_t up = (bytes + unit - 1) & ~(unit - 1);
  return up < bytes ? UINT64_MAX : up;
}

constexpr uint64_t rounded(uint64_t bytes) {
  if (bytes == 0) return 64;
  if (bytes <= 1024) return up_to_multiple(bytes, 64);
  if (bytes > kSmallMax) return up_to_multiple(bytes, uint64_t{64} << 10);
  const uint64_t below = std::bit_floor(bytes - 1);  // below < bytes <= 2 * below
  return up_to_multiple(bytes, below / 4);
}

constexpr size_t index_of(uint64_t size) {  // of a size that rounded() gives, at most kSmallMax
  if (size <= 1024) return static_cast<size_t>(size / 64 - 1);
  const uint64_t below = std::bit_floor(size - 1);
  const auto doubling = static_cast<size_t>(std::bit_width(below)) - 11;  // 0 for (1 KiB, 2 KiB]
  return 16 + doubling * 4 + static_cast<size_t>((size - below) / (below / 4)) - 1;
}

static_assert(index_of(rounded(0)) == 0 && index_of(1024) == 15 && index_of(rounded(1025)) == 16);
static_assert(index_of(kSmallMax) == kClasses - 1);

}  // namespace heddle::runtime::size_class
