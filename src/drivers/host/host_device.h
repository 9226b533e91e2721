// host_device.h: the processor as a device: in this process, on the caller's thread, no daemon.
//
//   What       make_host_device(): one thread budget, a Team of it, queues that do their work inside
//              submit().
//   Budget     Read once, when the device is made: the processors and the quota that the process has then are
//              in force for its life. An affinity set after the import and before the first use counts.
//   Threads    As device.h says. Submissions on different queues run at once, each on its caller's thread.
//   Blocks     Queue::submit(), for the length of the work and of the Wait commands in it.
//   Errors     What oneDNN fails at while a program runs, and neither the data nor a lack of memory explains,
//              fails the queue's timeline with device_lost, naming the operator.
//   Lifetime   Holds budget - 1 parked helper threads until it is destroyed. Made by a simulated thread
//              (base/simulation.h) it has none.
#pragma once

#include <functional>
#include <string>

#include "base/clock.h"
#include "device/device.h"

namespace heddle::host {

// How products are cut is measured on this processor (tuning/tuner.h).
struct HostTuning {
  bool on = false;
  bool all = false;         // of what is compiled, whatever it costs
  std::string folder = {};  // where it is kept; "": it is not
  std::function<void(const std::string&)> warn = [](const std::string&) {};
  const Clock* clock = &Clock::real();  // outlives the device
};

struct HostOptions {
  int threads = 0;             // 0: the cores this process may use (cpu_budget.h)
  bool copies_weights = true;  // to each memory node, where that pays (onednn/node_copies.h)
  // For tests: what is put before the paths that tell of the machine, and the processor that a thread runs
  // on; null: the system's.
  std::string root = {};
  int (*core)() = nullptr;
  HostTuning tuning = {};
};

Result<Ref<device::Device>> make_host_device(const HostOptions& options = {});

}  // namespace heddle::host
