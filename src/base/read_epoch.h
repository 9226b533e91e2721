// read_epoch.h: readers that take no lock, and a writer that learns when they have gone.
//
//   What       A reader is inside between enter() and the end of its Section. A writer unpublishes something,
//              begins a Grace, and may destroy that thing once passed(grace) is true: every reader that could
//              have found it has left.
//   States     Readers count themselves in one of two counters (the parity) of one of kStripes cache lines. A
//              Grace sees the idle parity at zero on every stripe, turns the parity so that new readers go
//              there, then sees the other at zero on every stripe. New readers therefore cannot hold a Grace
//              up for ever.
//   Ordering   enter() and the reader's load of the published pointer, and the writer's store to it and its
//              reads of the counters, are all seq_cst. In their one order, a reader whose entry the writer
//              did not see entered after the store, and so finds the new pointer, whatever parity it used.
//              Leaving releases and the writer's reads acquire: the reader's last look comes before the
//              destruction.
//   Threads    enter(): any. begin() and passed(): one writer at a time (its lock), one Grace at a time.
//   Blocks     Never. passed() looks once; to wait, its user pauses and looks again.
//   Lifetime   The ReadEpoch outlives its Sections. A Section is nanoseconds long: nothing in it blocks or
//              calls out.
#pragma once

#include <array>
#include <cstdint>

#include "base/atomic.h"

namespace heddle {

class ReadEpoch {
 private:
#if defined(HEDDLE_SIM)
  static constexpr uint32_t kStripes = 2;  // so that a Grace is few steps
#else
  static constexpr uint32_t kStripes = 32;
#endif
  static constexpr uint32_t kAllStripes = ~uint32_t{0} >> (32 - kStripes);
  // One word: how many are inside in the low bits, how often it was entered above. Entries wrap without harm.
  static constexpr int kInsideBits = 20;
  static constexpr uint64_t kOneInside = 1;
  static constexpr uint64_t kOneEntry = uint64_t{1} << kInsideBits;
  static constexpr uint64_t kInsideMask = kOneEntry - 1;

 public:
  class [[nodiscard]] Section {
   public:
    explicit Section(Atomic<uint64_t>& counter) : counter_(counter) {}
    Section(const Section&) = delete;
    Section& operator=(const Section&) = delete;
    ~Section() {
      counter_.sub_release(kOneInside);  // pairs with all_left()
      seam::did("read_epoch.leave");
    }

   private:
    Atomic<uint64_t>& counter_;
  };

  class Grace {
    friend ReadEpoch;
    bool turned = false;
    uint32_t stripes_pending = kAllStripes;
  };

  Section enter() const {
    Stripe& stripe = stripes_[this_thread_stripe()];
    const uint32_t parity = parity_.load_relaxed() & 1;
    Atomic<uint64_t>& counter = stripe.counters[parity];
    counter.add_seq_cst(kOneEntry | kOneInside);
    seam::did("read_epoch.enter", parity);
    return Section(counter);
  }

  Grace begin() const { return {}; }
  bool passed(Grace&);
  uint64_t entries() const;  // how often enter() was called: a statistic

 private:
  struct alignas(64) Stripe {
    std::array<Atomic<uint64_t>, 2> counters;  // by parity; readers of this stripe write, the writer reads
  };
  // A thread keeps its stripe for life. Of more than kStripes threads several share one: they are still
  // right, and write a line in common.
  static uint32_t this_thread_stripe() {
    if (stripe_plus_one_ == 0) [[unlikely]]
      stripe_plus_one_ = next_stripe() + 1;
    return stripe_plus_one_ - 1;
  }
  static uint32_t next_stripe();
  bool all_left(Grace&, uint32_t parity) const;

  inline static constinit thread_local uint32_t stripe_plus_one_ = 0;
  mutable std::array<Stripe, kStripes> stripes_;
  Atomic<uint32_t> parity_;  // where new readers count themselves; a hint: the proof above holds for either
};

}  // namespace heddle
