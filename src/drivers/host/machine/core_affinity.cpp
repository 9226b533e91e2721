#include "drivers/host/machine/core_affinity.h"

#if defined(__linux__)

#include <unistd.h>

namespace heddle::host {

void CoreAffinity::settle() {
  if (sched_getaffinity(0, sizeof allowed_, &allowed_) != 0) return;
  thread_.store_release(gettid());  // pairs with close()
}

void CoreAffinity::close(int core) {
  const pid_t thread = thread_.load_acquire();  // pairs with settle()
  if (thread == 0 || core >= CPU_SETSIZE) return;
  cpu_set_t others = allowed_;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0) return;
  closed_.store_relaxed(core);
  // Fails when the process has since been confined to this one core: then there is no better core.
  static_cast<void>(sched_setaffinity(thread, sizeof others, &others));
}

}  // namespace heddle::host

#endif

namespace heddle::host {

CoreNumbers::CoreNumbers() {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) != 0) return;
  int number = 0;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    numbers_.push_back(number);
    if (CPU_ISSET(core, &allowed)) ++number;
  }
#endif
}

}  // namespace heddle::host
