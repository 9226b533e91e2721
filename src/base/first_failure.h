// first_failure.h: a Status that fails once, for good: the first cause that any thread records.
//
//   Threads    Any. What was done before record() is visible to a thread that finds the failure.
//   Blocks     Never but for the lock, held for one assignment. While all is well nothing is locked.
#pragma once

#include <utility>

#include "base/atomic.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle {

class FirstFailure {
 public:
  void record(Status cause) {  // not ok
    auto first = cause_.lock();
    if (!first->ok()) return;
    *first = std::move(cause);
    failed_.store_relaxed(true);  // before the lock ends: whoever was second finds the failure, too
  }
  Status status() const {
    if (!failed_.load_relaxed()) return {};
    return *cause_.lock();
  }

 private:
  Atomic<bool> failed_{false};  // set once, with the lock, which orders it: who finds it set takes the lock
  mutable Guarded<Status, Rank::kHelpers> cause_;
};

}  // namespace heddle
