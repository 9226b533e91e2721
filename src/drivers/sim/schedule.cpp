#include "drivers/sim/schedule.h"

namespace heddle::sim {

uint64_t Schedule::mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

uint64_t Schedule::delay(uint64_t longest) {
  const uint64_t chance = next();
  return longest == 0 || chance % 4 != 0 ? 0 : (chance >> 8) % longest;
}

}  // namespace heddle::sim
