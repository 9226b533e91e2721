// poor_submission_fixture.h: a submission of a thread that finds no memory.
#pragma once

#include <new>
#include <optional>

#include "device/queue.h"
#include "tests/host_runtime/out_of_memory_fixture.h"

namespace heddle::test {

struct PoorSubmission {
  std::optional<Status> status;  // none: it threw
  bool reached = false;          // the allocation that failed
};

// The n-th allocation of submit() fails, and each after it where `from_there`; -1: each.
inline PoorSubmission submit_poorly(device::Queue& queue, const device::CommandList& list, uint64_t value,
                                    int64_t n, bool from_there) {
  PoorSubmission result;
  fails_from_there = from_there;
  fails_in = n;
  try {
    Status status = queue.submit(list, value, NoLocksHeld());
    result.reached = fails_in <= 0;
    fails_in = 0;
    result.status = std::move(status);
  } catch (const std::bad_alloc&) {
    result.reached = true;
    fails_in = 0;
  }
  fails_from_there = false;
  return result;
}

}  // namespace heddle::test
