#include "runtime/admission/gate.h"

namespace heddle::runtime {

bool Gate::enter() {
  const bool open = (word_.add_acq_rel(1) & kClosed) == 0;
  seam::did("gate.enter", open);
  if (open) return true;
  leave();
  return false;
}

void Gate::leave() {
  uint64_t seen = word_.load_relaxed();
  while ((seen & kClosed) == 0) {
    if (!word_.cas_weak_acq_rel(seen, seen - 1)) continue;
    seam::did("gate.leave");
    return;
  }
  // Under the lock, so that wait_empty() cannot return, and the gate be destroyed, while we still notify.
  auto held = emptied_.lock();
  const bool last = word_.sub_relaxed(1) == (kClosed | 1);
  seam::did("gate.leave_closed", last);
  if (last) held.notify_all();
}

// Calls that left before it was closed it has seen by that, and those after that by the lock.
Status Gate::wait_empty(Deadline deadline) {
  auto held = emptied_.lock();
  const auto is_empty = [&] {
    const bool empty = (word_.load_relaxed() & ~kClosed) == 0;
    seam::did("gate.look", empty);
    return empty;
  };
  if (held.wait_until(deadline, is_empty)) return {};
  return Status::deadline("still running: ", inside(), " calls");
}

}  // namespace heddle::runtime
