// sim_device.h: a device that does its worst: discrete, asynchronous, and seeded.
//
//   What       Wraps a synchronous device with unified memory, whose programs it runs, behind the same
//              contract: memory that the host cannot address (memory.h), queues that run side by side in
//              virtual time (event_loop.h), completions told late. It watches what its users do
//              (protocol.h), and fails on request (fault_plan.h).
//   Time       Virtual, and its own: it jumps to the next event. For a device made by a simulated thread
//              (base/simulation.h) it is the simulation's, and the simulation's seed decides with its own.
//   Threads    As device.h says. One thread, "heddle-sim", does the work and tells completions.
//   Blocks     Queue::submit() as event_loop.h says; a queue's destructor, until its work is over, is lost
//              or is held.
//   Errors     The first violation fails the device: its timelines say `internal` and name it.
//   Lifetime   As device.h says. The wrapped device is used for nothing else.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/device.h"
#include "drivers/sim/fault_plan.h"
#include "drivers/sim/history.h"
#include "drivers/sim/protocol.h"

namespace heddle::sim {

struct SimOptions {
  std::string name = "sim";  // Traits::name: devices of one name share a governor
  uint64_t seed = 1;
  int lanes = 3, queue_depth = 8;
  int runs_together = 1;                // Traits::runs_together
  uint64_t memory_bytes = 0;            // of each kind; 0: as the inner device says
  bool offsets = true;                  // Traits::binding.offsets
  std::vector<int64_t> row_sizes = {};  // Traits::row_sizes
  bool fails_on_violation = true;
  Duration longest = std::chrono::milliseconds(1);  // that a command takes, or a completion is late
  std::function<void()> inside_submit = {};         // for tests that want a second thread there
  std::function<void()> inside_call = {};           // the same for each of the host's calls of the driver
  bool keeps_history = false;
};

struct SimStats {
  uint64_t commands = 0, runs = 0, submissions = 0, failures = 0;
  uint64_t overlaps = 0;  // commands that began while one of another queue had not ended
  uint64_t bytes = 0;     // of memory that its users have
};

class SimDevice : public device::Device {
 public:
  virtual std::vector<Found> violations() const = 0;
  virtual Faults<Fault>& faults() = 0;
  // From hold() on nothing begins, ends or is told, until release().
  virtual void hold() = 0;
  virtual void release() = 0;
  virtual void deliver_lost() = 0;  // what Fault::kLostCompletion kept back; and what hangs goes on
  // Blocks until there is nothing to do: all is told, lost or failed, or waits for what is lost.
  virtual void await_idle() = 0;
  // To be called where the host is about to read staging memory.
  virtual void check_host_read(const device::Buffer& buffer) = 0;
  virtual SimStats stats() const = 0;
  virtual std::vector<Happened> history() const = 0;  // so far, with keeps_history
  virtual const Clock& clock() const = 0;             // virtual time
};

// invalid if `inner` is not synchronous, or has memory that the host cannot address.
Result<Ref<SimDevice>> make_sim_device(Ref<device::Device> inner, const SimOptions& options = {});

}  // namespace heddle::sim
