// counters.h: statistics that belong to no encoder. They order nothing.
#pragma once

#include <atomic>
#include <cstdint>

namespace agx_guard {

struct Counter {
  std::atomic<uint64_t> value{0};
  void add(uint64_t more = 1) { value.fetch_add(more, std::memory_order_relaxed); }
  void raise_to(uint64_t other) {
    uint64_t seen = value.load(std::memory_order_relaxed);
    while (seen < other && !value.compare_exchange_weak(seen, other, std::memory_order_relaxed)) {
    }
  }
  uint64_t read() const { return value.load(std::memory_order_relaxed); }
};

struct Counters {
  Counter calls;  // of encoders that are gone; the others count for themselves
  Counter lock_contentions, lock_wait_warnings, lock_limits, lock_wait_us_max;
  Counter encoders_made, encoders_made_parallel, encoders_adopted, encoders_released;
  Counter encoders_kept_past_completion;
  Counter buffers_made, buffers_committed, buffers_committed_open, buffers_abandoned;
  Counter events_signalled, events_waited_for;
  Counter late_calls, late_carried, late_refused, late_nothing, late_buffers;
};

inline Counters counters;

}  // namespace agx_guard
