// faults.h: faults on request.
//
//   What       One switch for each value of an enum whose last value is kCount: off, on, armed for one time
//              to come or for all from that one on, or counting.
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
  // The nth take() and each one after it.
  void arm_from(Fault fault, int64_t nth) { at(fault).store_release(-nth - 1); }
  // Hits never; passed() says how often take() was called since.
  void count(Fault fault) { at(fault).store_release(kCounting); }
  int64_t passed(Fault fault) const { return kCounting - at(fault).load_acquire(); }
  bool is_on(Fault fault) const { return at(fault).load_acquire() != 0; }
  // For faults that hit once: true if it was on or this is the armed time, and off from then on.
  bool take(Fault fault);
  void reset() {
    for (auto& each : switches_) each.store_release(0);
  }

 private:
  static constexpr int64_t kOn = -1, kAlways = -2, kCounting = int64_t{1} << 40;
  static constexpr size_t kCount = static_cast<size_t>(Fault::kCount);
  const Atomic<int64_t>& at(Fault fault) const { return switches_[static_cast<size_t>(fault)]; }
  Atomic<int64_t>& at(Fault fault) { return switches_[static_cast<size_t>(fault)]; }

  // 0: off; kOn; above: how many times are left until it hits; below, kAlways less the times that are left
  // until it hits each time. Set by tests, counted by compare-and-swap.
  std::array<Atomic<int64_t>, kCount> switches_;
};

template <class Fault>
bool Faults<Fault>::take(Fault fault) {
  Atomic<int64_t>& left = at(fault);
  for (int64_t seen = left.load_acquire(); seen != 0;) {
    if (seen == kAlways) return true;
    const int64_t next = seen == kOn ? 0 : seen > 0 ? seen - 1 : seen + 1;
    if (left.cas_weak_acq_rel(seen, next)) return next == 0;
  }
  return false;
}

}  // namespace heddle::sim
