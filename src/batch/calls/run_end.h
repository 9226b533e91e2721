// run_end.h: the end of a batch's run, which whoever of its callers sees first publishes.
//
//   What       The leader starts the run and shows where its end is seen. Callers that look for their answer
//              look there, too; one claims the end, takes the result and publishes it. So nobody waits until
//              a leader has its core again: on 16 cores 256 callers get 1.2 times as many answers a second
//              so, and the slowest of 64 wait 1.9 times as long as the median, not 2.5 (docs/cuda.md).
//   States     hidden -> shown, once -> claimed -> given back, where the claimer's deadline passed -> claimed
//   Threads    show(): who started the run. The others: each caller of the batch. Who claims has what was
//              written before show() and before give_back().
//   Blocks     Nothing.
//   Lifetime   The timeline is kept until renew().
//   Source     Helping, as in lock-free algorithms: who waits for a step of another's does it itself.
#pragma once

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
  // True: this thread, and no other, publishes the result. It may have to wait for the end.
  bool claim() {
    const bool first = !claimed_.exchange_acq_rel(true);
    seam::did("batch.claim_end", first);
    return first;
  }
  // The same where the run is over. Looks without waiting.
  bool claim_if_over() {
    if (!is_shown() || claimed_.load_relaxed()) return false;
    if (!timeline_->done(value_)) timeline_->look();
    return (timeline_->done(value_) || timeline_->failed()) && claim();
  }
  void give_back() {
    claimed_.store_release(false);
    seam::did("batch.give_back_end");
  }
  void renew() {  // nobody looks
    shown_.store_relaxed(false);
    claimed_.store_relaxed(false);
    timeline_.reset();
  }

 private:
  Atomic<bool> shown_{false};
  Atomic<bool> claimed_{false};
  Ref<device::Timeline> timeline_;
  uint64_t value_ = 0;
};

}  // namespace heddle::batch
