// schedule.h: decisions that a seed makes.
//
//   What       A sequence of numbers that depends on the seed and on a lane's number alone: which queue goes
//              next, how long a command takes, how late a completion is told. Equal seeds, equal decisions.
//   Threads    One.
//   Blocks     Never.
#pragma once

#include <cstdint>

namespace heddle::sim {

class Schedule {
 public:
  // Mixed: if their states lay a step apart, each lane's sequence would be its neighbour's, one decision on.
  Schedule(uint64_t seed, uint64_t lane) : state_(mix(seed + mix(lane + 1))) {}

  uint64_t next() { return mix(state_ += 0x9e3779b97f4a7c15); }
  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : (next() >> 8) % bound; }
  bool one_in(uint64_t n) { return below(n) == 0; }
  // Under `longest`. Three of four are 0, so that lanes drift against each other.
  uint64_t delay(uint64_t longest);

 private:
  static uint64_t mix(uint64_t z);  // splitmix64's

  uint64_t state_;
};

}  // namespace heddle::sim
