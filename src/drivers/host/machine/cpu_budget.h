// cpu_budget.h: how many cores and how much memory this process may use.
//
//   What       The affinity mask, and the quota of every control group above us (version 1 or 2): the least
//              of them counts. A container that may use two of 64 cores is a machine of two cores.
//   Rounding   A quota of 2.5 cores counts as 2: a third thread would make the kernel stop all of them for
//              part of each period.
//   Threads    Any. Reads /proc and /sys/fs/cgroup each time.
//   Blocks     On those files only.
#pragma once

#include <cstdint>
#include <string>

namespace heddle::host {

struct Budget {
  int cores = 1;              // at least 1
  int processors = 1;         // that the affinity mask has, whatever the quota; at least `cores`
  uint64_t memory_bytes = 0;  // physical memory, or the group's limit when that is less
};

// `root` is put before every path that is read ("/proc/self/cgroup"): tests bring trees of their own.
Budget read_budget(const std::string& root = "");

}  // namespace heddle::host
