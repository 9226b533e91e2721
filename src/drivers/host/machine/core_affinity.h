// core_affinity.h: keeps a helper thread off the core of the caller that it is to help.
//
//   What       A woken thread may be put behind the very thread that woke it, while another core idles; some
//              kernels (virtual machines whose cores share no cache that they know of) leave it there for
//              milliseconds, which is longer than the loop. So a caller closes its core to the helpers before
//              it counts on them.
//   Invariant  A helper may use every core that the process might use when its team was made, but one.
//   Elsewhere  macOS places threads itself and takes no such wish: there all of it does nothing. Nor does it
//              where the kernel's mask has more than 1024 processors, which cpu_set_t cannot hold.
//   Threads    settle(): the helper. keep_off(): any caller; two at once leave one of their cores closed,
//              which is a hint's worth.
//   Blocks     One system call in keep_off(), when the caller is not on the core that is closed already.
#pragma once

#include <sched.h>
#include <sys/types.h>

#include <vector>

#include "base/atomic.h"
#include "base/seam.h"

namespace heddle::host {

#if defined(__linux__)

// -1 when the system does not say, and on a simulated thread, where nothing may depend on it.
inline int this_core() {
#if defined(HEDDLE_SIM)
  if (seam::simulated()) return -1;
#endif
  return sched_getcpu();
}

class CoreAffinity {
 public:
  void settle();  // once, first
  void keep_off(int core) {
    if (core >= 0 && closed_.load_relaxed() != core) close(core);
  }

 private:
  void close(int core);

  cpu_set_t allowed_{};      // written by settle(), before thread_ is released
  Atomic<pid_t> thread_{0};  // 0 until settled; publishes allowed_
  Atomic<int> closed_{-1};   // the core that the helper may not use: a hint that orders nothing
};

#else

inline int this_core() { return -1; }

class CoreAffinity {
 public:
  void settle() {}
  void keep_off(int) {}
};

#endif

// Numbers the cores that the process may use from 0 on.
class CoreNumbers {
 public:
  CoreNumbers();
  int of_this_thread(int otherwise) const {
    const auto core = static_cast<size_t>(this_core());
    return core < numbers_.size() ? numbers_[core] : otherwise;
  }

 private:
  std::vector<int> numbers_;  // by core; of those that may not be used anything
};

}  // namespace heddle::host
