// state.h: the double's state of the process: faults, counts, memory, and the schedule.
//
//   Threads   Any.
//   Blocks    hold() for as long as the schedule says, at most the longest delay of control.h;
//             end_pass() for what is left of a pass's time; stuck_kernel() until end_stuck_kernels();
//             arrive() for the others of a meeting, twenty seconds at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "tests/metal_double/control.h"

namespace heddle::metal_double {

void add(Count what);
Memory memory();
Kernel find_kernel(std::string_view name);  // null if none is registered

uint64_t next_queue();  // 0, 1, ...: how many queues came before, since seed() or reset()

// A queue's decisions: a sequence that depends on the seed and the queue's number alone. One thread.
class Schedule {
 public:
  explicit Schedule(uint64_t queue);
  uint32_t next_delay_us();  // the next decision; 0: not held
  void hold();

 private:
  uint64_t state_;
};

void stuck_kernel();

void arrive(Meeting where);  // returns when the others of the meeting are there, or did not come
void end_meetings();         // for reset()

// Time as the device takes it: end_pass() returns no sooner than set_pass_time_us() after its making.
class PassTime {
 public:
  PassTime();
  void end_pass() const;

 private:
  std::chrono::steady_clock::time_point end_;
};

// Counted in live_objects() while it exists: a member of every class of the double.
class Alive {
 public:
  Alive();
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;
  ~Alive();
};

}  // namespace heddle::metal_double
