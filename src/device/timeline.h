// timeline.h: how far a queue's work has got.
//
//   What       One counter per queue. Submission n is over when done(n); who saw that sees its results.
//   Invariant  Only grows. Fails at most once, and then for good: every wait for a value not reached before
//              the failure returns its cause.
//   Fork       A child advances nothing and takes no lock: what was not reached, or failed, is `unavailable`.
//   Threads    advance() and fail() belong to the driver's completion path, one thread at a time (only queues
//              can make a Completion); the rest to anyone.
//   Blocks     wait(), until its deadline. Nothing else. advance() calls no callback.
//   Lifetime   Shared: queue, stream, events and buffers' histories hold it. It may outlive the device.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/fork.h"
#include "base/held_back.h"
#include "base/stamp.h"
#include "base/status.h"
#include "base/sync.h"

namespace heddle::device {

class Completion {
  friend class Queue;
  Completion() = default;
};

class Timeline : public HeldBack {
 public:
  Timeline() = default;
  virtual ~Timeline() = default;  // a driver may keep its own event with it
  bool is_ours() const { return fork_generation() == generation_; }
  bool done(uint64_t value) const { return reached_.load_acquire() >= value; }  // pairs with advance()
  uint64_t reached() const { return reached_.load_acquire(); }
  bool failed() const { return failed_.load_acquire(); }  // pairs with fail()
  Status failure() const;                                 // the cause; ok while it has not failed

  // Ok, the cause, deadline, or unavailable in a forked child.
  Status wait(uint64_t value, Deadline deadline);
  // For drivers that no thread tells of completions. look() learns how far the device is, and never blocks;
  // any thread calls it. watch(): somebody sleeps; `value` is reached, or it fails, though nobody looks.
  virtual void look() {}
  virtual void watch(uint64_t /*value*/) {}
  // How long a thread that waits may look before it sleeps. After anything but 0 it calls end_looking().
  virtual Duration begin_looking() { return Duration(0); }
  virtual void end_looking() {}
  // Filled when `value` is reached (at once, if it is), or on failure. Who sees `value` reached finds it
  // filled, unless stamp() ran beside the advance(): then soon after.
  Ref<const Stamp> stamp(uint64_t value, const Clock& clock);
  void attach(Ref<Bell> bell) { bell_ = std::move(bell); }  // once, before the first submission
  // The bell rings by the time `value` is reached. False: it is, or this has failed; it may have rung before.
  bool ring_at(uint64_t value);

  void advance(uint64_t value, Completion);
  void fail(Status cause, Completion);

 private:
  // One writer (the completion path), many readers; results of submissions <= reached_ are published by it.
  Atomic<uint64_t> reached_{0};
  // Set once, under the lock, after the cause. Who acquires it has the memory that the queue used.
  Atomic<bool> failed_{false};
  // Waiters that may sleep. advance() writes reached_ and then reads this, a waiter the reverse; all seq_cst,
  // so they cannot both miss each other, and advance() takes the lock for them only when one sleeps.
  mutable Atomic<int> parked_{0};
  // Unfilled stamps, changed under the lock. advance() reads it (relaxed: who submitted after stamp() is in
  // order with it) before it writes reached_, to fill what is due, and again (seq_cst) after, for one that
  // came between; stamp() adds and then reads reached_.
  Atomic<size_t> stamped_{0};
  struct Waiters {
    Status cause;
    std::vector<std::pair<uint64_t, Ref<Stamp>>> stamps;
  };
  template <class Settled>
  void look_until(TimePoint end, Settled&& settled);
  size_t fill_stamps(Waiters& waiters, uint64_t value);  // those up to `value`; how many are left
  mutable Guarded<Waiters, Rank::kTimeline> waiters_;
  // The last value to ring at, written under the lock. Between ring_at() and advance() as parked_; seq_cst.
  Atomic<uint64_t> rings_at_{0};
  Ref<Bell> bell_;                                 // null: no thread waits for several timelines
  const uint32_t generation_ = fork_generation();  // of the maker
};

// A moment in a queue's work.
struct Point {
  Ref<Timeline> timeline;
  uint64_t value = 0;
  bool done() const { return timeline == nullptr || timeline->done(value); }
};

// The vendor's own, as Traits::events says: an id<MTLSharedEvent> and a value of it, or a cudaEvent_t.
struct ForeignEvent {
  void* handle = nullptr;
  uint64_t value = 0;              // 0 where the vendor's events have none
  Ref<const void> keep = nullptr;  // owns the handle: held for as long as a driver uses it
};

}  // namespace heddle::device
