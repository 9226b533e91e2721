// alike.h: numbers of rows for which one algorithm of a library is taken to be the fastest.
//
//   What       Ragged calls come with any number of rows. Those up to a power of two, or up to three quarters
//              of one, are alike: the fastest is measured once for them all, with the most rows of them.
//   Threads    Any.
#pragma once

#include <bit>
#include <cstdint>

namespace heddle::cuda {

// 1, 2, 4, 8, 12, 16, 24, 32, 48, 64, 96, ...: the least of these that is not below `rows`, 1 or more.
constexpr int64_t most_alike(int64_t rows) {
  constexpr int64_t kPowersOnly = 8;
  const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
  const int64_t less = power / 4 * 3;
  return power > kPowersOnly && rows <= less ? less : power;
}

}  // namespace heddle::cuda
