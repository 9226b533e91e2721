#include "base/condition.h"

#if defined(__linux__)

#include "base/futex.h"

namespace heddle {

void Condition::wait(std::unique_lock<Mutex>& held, Deadline deadline) {
  const uint32_t seen = rings_.load_relaxed();
  seam::did("condition.see_rings");
  sleepers_.add_relaxed(1);
  seam::did("condition.sleep");
  held.unlock();
  futex::sleep_while(rings_, seen, deadline, "condition wait");
  sleepers_.sub_relaxed(1);
  seam::did("condition.wake");
  held.lock();
}

void Condition::ring(int sleepers) {
  rings_.add_relaxed(1);
  seam::did("condition.ring");
  const bool any = sleepers_.load_relaxed() != 0;
  seam::did("condition.look_for_sleepers", any);
  if (any) futex::wake(rings_, sleepers, "condition notify");
}

}  // namespace heddle

#endif
