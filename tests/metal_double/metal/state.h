// state.h: the double's state of the process: faults, counts, memory, and the schedule.
//
//   Threads   Any.
//   Blocks    hold() for as long as the schedule says, at most the longest delay of control.h;
//             stuck_kernel() until end_stuck_kernels().
#pragma once

#include <cstdint>
#include <string_view>

#include "tests/metal_double/control.h"

namespace heddle::metal_double {

void add(Count what);
Memory memory();
Kernel find_kernel(std::string_view name);  // null if none is registered

// A queue's decisions: a sequence that depends on the seed and the queue's number alone.
class Schedule {
 public:
  explicit Schedule(uint64_t queue);
  void hold();

 private:
  uint64_t next();

  uint64_t state_;
};

void stuck_kernel();

// Counted in live_objects() while it exists: a member of every class of the double.
class Alive {
 public:
  Alive();
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;
  ~Alive();
};

}  // namespace heddle::metal_double
