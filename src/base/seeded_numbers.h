// seeded_numbers.h: equal seeds, equal numbers, on every machine.
//
//   Threads    One at a time.
//   Blocks     Never.
#pragma once

#include <cstdint>

namespace heddle {

class SeededNumbers {
 public:
  explicit SeededNumbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {  // splitmix64
    uint64_t z = state_ += 0x9E3779B97F4A7C15u;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  uint64_t below(uint64_t limit) { return limit == 0 ? 0 : (next() >> 32) * limit >> 32; }

 private:
  uint64_t state_;
};

}  // namespace heddle
