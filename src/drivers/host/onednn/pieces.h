// pieces.h: a step cut into pieces that oneDNN computes, shared by the threads that help its caller.
//
//   Errors     internal, with the words of `what`, when a piece fails; the others still run.
//   Threads    As Team::Caller says: `run` is called from several threads at once, each time with another
//              piece.
#pragma once

#include "base/atomic.h"
#include "drivers/host/machine/team.h"
#include "drivers/host/step.h"

namespace heddle::host {

// Operations: about ten microseconds of one core. For less than that, waking a helper costs more than it
// brings.
inline constexpr int64_t kWorthSharing = 1 << 20;

template <class Run>
Status for_each_piece(const RunContext& context, size_t pieces, const char* what, Run run) {
  Atomic<bool> failed{false};
  context.caller.for_each(static_cast<int>(pieces), [&](int i) {
    if (!run(static_cast<size_t>(i)).ok()) failed.store_release(true);
  });
  return failed.load_acquire() ? Status::internal("a piece of ", what, " failed in oneDNN") : Status();
}

}  // namespace heddle::host
