// faults.h: faults on request.
//
//   What       One switch for each value of an enum whose last value is kCount: off, on, or armed for one
//              time to come.
//   Shared     By the simulated device and the Metal double, each with an enum of its own.
//   Threads    Any. A fault that is switched on holds for what begins after the call.
//   Blocks     Never.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/atomic.h"

namespace heddle::sim {

template <class Fault>
class Faults {
 public:
  void set(Fault fault, bool on) { at(fault).store_release(on ? kOn : 0); }
  // The nth take() from here on, counted from 1, is true, and no other.
  void arm(Fault fault, int64_t nth) { at(fault).store_release(nth); }
  bool is_on(Fault fault) const { return at(fault).load_acquire() != 0; }
  // For faults that hit once: true if it was on or this is the armed time, and off from then on.
  bool take(Fault fault);
  void reset() {
    for (auto& each : switches_) each.store_release(0);
  }

 private:
  static constexpr int64_t kOn = -1;
  static constexpr size_t kCount = static_cast<size_t>(Fault::kCount);
  const Atomic<int64_t>& at(Fault fault) const { return switches_[static_cast<size_t>(fault)]; }
  Atomic<int64_t>& at(Fault fault) { return switches_[static_cast<size_t>(fault)]; }

  // 0: off; kOn; else how many times are left until it hits. Set by tests, counted down by compare-and-swap.
  std::array<Atomic<int64_t>, kCount> switches_;
};

template <class Fault>
bool Faults<Fault>::take(Fault fault) {
  Atomic<int64_t>& left = at(fault);
  for (int64_t seen = left.load_acquire(); seen != 0;) {
    const int64_t next = seen == kOn ? 0 : seen - 1;
    if (left.cas_weak_acq_rel(seen, next)) return next == 0;
  }
  return false;
}

}  // namespace heddle::sim
