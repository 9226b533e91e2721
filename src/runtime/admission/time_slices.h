// time_slices.h: which of many threads go on, where each calls again and again on the processors of callers.
//
//   What       Threads that run eager operators come back within microseconds. Many of them would take
//              processors from each other, and Python's lock, for every operator. So `width` of them have a
//              slice of time at once. A thread keeps its slice from call to call: for kSlice after others
//              began to wait, else for good.
//   Rest       A thread that is about to wait for its device (in a call, a copy or a synchronisation; not in
//              the waits of events and tensors), or to run what takes long, says so: its slice
//              goes on to the first that waits for one. Back within its time, it is at the head of the line,
//              and whoever has a slice for kGuest hands it over, to be the next in the line.
//   Idle       The first that waits takes a slice whose owner did not call for kIdle, or whose owner's call
//              has not ended for kLong: then one thread more goes on.
//   Hint       A slice says who should go on, not who may. A call never waits for a slice while every owner
//              waits for that call: after kLong it has one. A call within one that has a slice needs none.
//   Order      Those back from a rest, then whoever handed a slice to one of them, then first come, first
//              served. A slice that ends is handed to the first that waits.
//   States     A slice is free at first. A call of its owner makes it busy. The end of the call makes it
//              kept: the owner's next call finds it. Rest makes a kept one free, or the next one's. Only
//              compare-and-swap changes a slice's word, so that two threads never have one slice.
//   Threads    Any. Within its slice a thread writes one line of its own and takes no lock.
//   Blocks     A Call's constructor, while `width` others have slices, until its deadline.
//   Lifetime   Outlives its calls.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/parker.h"
#include "base/sync.h"
#include "runtime/admission/owner_words.h"

namespace heddle::runtime {

// The time that a thread has left, of a slice that it gave away before its end.
struct TimeLeft {
  uint64_t slices = 0;  // the number of the TimeSlices; 0: none
  TimePoint since;      // when it found that others wait
  bool has_rested = false;
};

class TimeSlices {
 public:
  static constexpr Duration kSlice = std::chrono::milliseconds(10);
  static constexpr Duration kIdle = std::chrono::microseconds(100);
  static constexpr Duration kGuest = std::chrono::milliseconds(1);
  static constexpr Duration kLong = std::chrono::milliseconds(10);

  // How many threads are best at once (docs/performance.md and docs/cuda.md compare). Where callers compute,
  // idle cores help those few; more threads would be in each other's way for Python's lock. A device that
  // computes by itself needs one thread in Python and one that describes its operator. More than 16
  // processors were not measured.
  static int width_for(int threads, bool synchronous) {
    return synchronous ? std::min(threads, std::max(3, threads / 5)) : 2;
  }

  // width >= 1. The clock outlives it.
  TimeSlices(int width, const Clock& clock);
  TimeSlices(const TimeSlices&) = delete;
  TimeSlices& operator=(const TimeSlices&) = delete;

  // One call of the thread that makes and destroys it.
  class Call {
   public:
    // Without a slice after the deadline.
    Call(TimeSlices& slices, Deadline deadline) : slices_(slices), place_(slices.enter(deadline)) {}
    ~Call() { slices_.leave(place_); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    TimeSlices& slices_;
    const int place_;
  };

  int width() const { return static_cast<int>(slices_.size()); }
  // Of a thread, outside its calls.
  void rest();

  struct Stats {
    uint64_t waits = 0;   // calls that had to
    uint64_t passed = 0;  // slices that ended, or rested, while others waited
    uint64_t idle = 0;    // free, or taken from owners that did not call
    uint64_t longs = 0;   // taken from owners whose call took long
  };
  Stats stats() const;

 private:
  static constexpr int kNone = -1;
  static constexpr uint32_t kLook = 1;

  struct Waiter {
    Parker parker;
    uint64_t owner = 0;
    bool has_rested = false;
    int place = kNone;  // of a slice that was handed to it, once it is not in the line: under its lock
  };
  // What the first that waits saw of a slice, and since when.
  struct Seen {
    uint64_t word = 0, calls = 0;
    TimePoint at;
  };
  struct Line {
    std::deque<std::shared_ptr<Waiter>> waiters;  // first those that have rested
    std::vector<Seen> seen;                       // by slice, for whoever is the first
    Stats stats;
  };
  struct alignas(64) Slice {
    Atomic<uint64_t> word{0};   // 0: the slice is free. Else kept_by() or busy_of() gives its value
    Atomic<uint64_t> calls{0};  // how many have begun in it
    Atomic<TimePoint> since{TimePoint::max()};  // when its owner found that others wait
    Atomic<TimePoint> begun{TimePoint()};       // when its owner got it
  };

  static uint64_t kept_by(uint64_t owner) { return owner << 1; }
  static uint64_t busy_of(uint64_t owner) { return owner << 1 | 1; }

  int enter(Deadline deadline);
  void leave(int place);
  bool begin(Slice& slice, uint64_t from, uint64_t owner);
  int take_free(uint64_t owner);
  int wait_in_line(uint64_t owner, const TimeLeft& left, Deadline deadline);
  TimeLeft take_left();
  // The place, and what is counted of it.
  struct Taken {
    int place = kNone;
    uint64_t Stats::* counts = nullptr;
  };
  Taken take_idle(uint64_t owner, std::vector<Seen>& seen);
  bool pass_on(Slice& slice, int place, uint64_t from);
  void changed(const Line& line, bool first_left);

  inline static constinit thread_local LastPlaces last_places_;
  inline static constinit thread_local TimeLeft left_;
  inline static constinit Atomic<uint64_t> made_{0};  // numbers them: orders nothing
  const uint64_t number_ = made_.add_relaxed(1) + 1;
  const Clock& clock_;
  std::vector<Slice> slices_;
  Atomic<size_t> waiting_{0};  // hints, written under the line's lock: how many wait,
  Atomic<size_t> rested_{0};   // and how many of these have rested
  Guarded<Line, Rank::kGovernor> line_;
};

}  // namespace heddle::runtime
