// sim_hooks.h: what tests that have libheddle alone, as Python's do, ask of the simulated device.
//
//   What       Two functions that the library exports in builds with HEDDLE_SIM, and in no other.
//              tests/fault_points/python_points.py finds them by their names.
//   Device     The simulated device that was opened last, of those that live.
//   Threads    Any. inside_call() runs on threads that call the driver.
#pragma once

#if defined(HEDDLE_SIM)

#include <heddle/heddle.h>

#include <cstdint>

namespace heddle::sim_hooks {

// "fault compile 3+", "count", "passed compile", "armed compile", "reset", "idle", "lost", "bytes",
// "staging", "violations", "faults" (how many there are): a number, or 0. Below 0: it cannot be asked so.
HEDDLE_API int64_t ask(const char* words);
// Called at each of the host's calls of the driver, of every simulated device that is made from now on; null:
// nothing is.
HEDDLE_API void at_each_call(void (*called)());

void inside_call();  // SimOptions::inside_call of devices that have a name

}  // namespace heddle::sim_hooks

#endif
