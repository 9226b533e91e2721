#include "runtime/admission/gate.h"

namespace heddle::runtime {

bool Gate::enter() {
  if ((word_.add_acq_rel(1) & kClosed) == 0) return true;
  leave();
  return false;
}

void Gate::leave() {
  uint64_t seen = word_.load_relaxed();
  while ((seen & kClosed) == 0) {
    if (word_.cas_weak_acq_rel(seen, seen - 1)) return;
  }
  // Under the lock, so that wait_empty() cannot return, and the gate be destroyed, while we still notify.
  auto held = emptied_.lock();
  if (word_.sub_acq_rel(1) == (kClosed | 1)) held.notify_all();
}

Status Gate::wait_empty(Deadline deadline) {
  auto held = emptied_.lock();
  if (held.wait_until(deadline, [&] { return (word_.load_acquire() & ~kClosed) == 0; })) return {};
  return Status::deadline("still running: ", inside(), " calls");
}

}  // namespace heddle::runtime
