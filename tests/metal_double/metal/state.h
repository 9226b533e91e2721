// state.h: the double's state of the process: faults, counts, memory, the schedule's seed, and what is over.
//
//   What      One object that holds what drivers/sim makes faults, schedules and hazards of.
//   Ordering  Metal's: in one queue tracked buffers are ordered by Metal, untracked ones by a fence, by an
//             event, or by a commit after the earlier one's completion; between two queues by an event or
//             such a commit.
//   Threads   Any. The lock of what the host has seen is the innermost of the double.
//   Blocks    hold() for as long as the schedule says, at most the longest delay of control.h;
//             end_pass() for what is left of a pass's time; stuck_kernel() until end_stuck_kernels();
//             arrive() for the others of a meeting, twenty seconds at most.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "drivers/sim/hazards.h"
#include "drivers/sim/schedule.h"
#include "tests/metal_double/control.h"

namespace heddle::metal_double {

using sim::AccessLog;
using sim::Bytes;
using sim::Knowledge;
using sim::Position;
using sim::QueueNumber;
using sim::Schedule;

void add(Count what);
Memory memory();
Kernel find_kernel(std::string_view name);  // null if none is registered

uint64_t next_queue();  // 0, 1, ...: how many queues came before, since seed() or reset()
Schedule make_schedule(uint64_t lane);
uint32_t next_delay_us(Schedule& schedule);  // 0: not held
void hold(Schedule& schedule);

void retire(QueueNumber queue);  // a queue that died: all of its passes are over for everyone
const sim::Retired& retired();
void host_saw(const Knowledge& completed);
Knowledge host_knowledge();

void stuck_kernel();

void arrive(Meeting where);  // returns when the others of the meeting are there, or did not come
void end_meetings();         // for reset()
void reset_field();          // the same

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
