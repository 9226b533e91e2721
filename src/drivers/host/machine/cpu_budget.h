// cpu_budget.h: how many cores and how much memory this process may use.
//
//   What       The affinity mask, and the quota of every control group above us (version 1 or 2): the least
//              of them counts. A container that may use two of 64 cores is a machine of two cores.
//   Rounding   A quota of 2.5 cores counts as 2: a third thread would make the kernel stop all of them for
//              part of each period.
//   When       read_budget() reads the calling thread's mask, and the groups' files, each time. A device
//              reads them once, when it is made: what `taskset` or the group says then is in force for its
//              life. A later change makes its helpers wait for each other, and changes no result.
//   Limits     None: the mask is as wide as the kernel's.
//   Threads    Any.
//   Blocks     On those files only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace heddle::host {

struct Budget {
  int cores = 1;              // at least 1
  int processors = 1;         // that the affinity mask has, whatever the quota; at least `cores`
  uint64_t memory_bytes = 0;  // physical memory, or the group's limit when that is less
  std::vector<int> numbers;   // of those processors, ascending; empty where the system does not tell
  int online = 1;             // processors of the machine
  double quota = 0;           // of the groups, in processors; 0: none

  std::string why() const;  // "3: affinity 4 of 128, cgroup quota 3.5 -> 3"
};

// `root` is put before every path that is read ("/proc/self/cgroup"): tests bring trees of their own. A tree
// with a /proc/self/status says there which processors are allowed ("Cpus_allowed_list:").
Budget read_budget(const std::string& root = "");

// "0-3,8": ascending, each once. What makes no sense in it is left out.
std::vector<int> read_cpu_list(const std::string& text);

}  // namespace heddle::host
