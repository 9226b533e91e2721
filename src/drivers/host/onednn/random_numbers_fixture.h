// random_numbers_fixture.h: the same numbers for the same seed, for tests of products.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace heddle::host {

inline std::vector<float> random_numbers(int64_t count, unsigned seed) {  // from -1 to 1
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> value(-1, 1);
  std::vector<float> out(static_cast<size_t>(count));
  for (float& one : out) one = value(random);
  return out;
}

}  // namespace heddle::host
