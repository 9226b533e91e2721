// run_end.h: the end of a batch's run, which whoever of its callers sees first publishes.
//
//   What       The leader starts the run and shows where its end is seen. Callers that look for their answer
//              look there, too; one claims the end, takes the result and publishes it. So callers that look
//              do not wait until a leader has its core again: on 16 cores 256 callers get 1.2 times as many
//              answers a second so, and the slowest of 64 wait 1.9 times as long as the median, not 2.5
//              (docs/cuda.md).
//   States     hidden -> shown -> claimed, once the run is over
//   Threads    show(): who started the run. The others: each caller of the batch. Who claims has what was
//              written before show().
//   Blocks     await(), until its deadline. Nothing else.
//   Lifetime   The timeline is kept until renew().
//   Source     Helping, as in lock-free algorithms: who waits for a step of another's does it itself.
#pragma once

#include <new>
#include <utility>

#include "base/atomic.h"
#include "base/seam.h"
#include "device/timeline.h"

namespace heddle::batch {

class RunEnd {
 public:
  void show(Ref<device::Timeline> timeline, uint64_t value) {
    timeline_ = std::move(timeline);
    value_ = value;
    shown_.store_release(true);
    seam::did("batch.show_end");
  }
  bool is_shown() const { return shown_.load_acquire(); }
  // True: this thread, and no other, publishes the result.
  bool claim() {
    const bool first = !claimed_.exchange_acq_rel(true);
    seam::did("batch.claim_end", first);
    return first;
  }
  // The same where the run is over, which a look that lacks memory does not see.
  bool claim_if_over() {
    if (!is_shown() || claimed_.load_relaxed()) return false;
    try {
      if (!is_over()) timeline_->look();
    } catch (const std::bad_alloc&) {
      return false;
    }
    return is_over() && claim();
  }
  // Once it is shown. deadline: the run is not over by then. What became of it, who claims it learns.
  Status await(Deadline deadline) const {
    const Status waited = timeline_->wait(value_, deadline);
    return is_over() ? Status() : waited;
  }
  void renew() {  // nobody looks
    shown_.store_relaxed(false);
    claimed_.store_relaxed(false);
    timeline_.reset();
  }

 private:
  bool is_over() const { return timeline_->done(value_) || timeline_->failed(); }

  Atomic<bool> shown_{false};
  Atomic<bool> claimed_{false};
  Ref<device::Timeline> timeline_;
  uint64_t value_ = 0;
};

}  // namespace heddle::batch
