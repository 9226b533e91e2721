// sim_word.h: the std::atomic inside an Atomic, in builds with HEDDLE_SIM.
//
//   What       The operations of std::atomic that Atomic uses. In a simulation with a memory of its own
//              (seam::Memory) that says what a load finds; everywhere else it is the std::atomic.
//   Layout     One std::atomic and nothing else: the kernel compares it.
//   Threads    Any.
//   Blocks     Never.
#pragma once

#if defined(HEDDLE_SIM)

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/seam.h"

namespace heddle {

template <class T>
class SimWord {
 public:
  constexpr SimWord(T value) : value_(value) {  // NOLINT: implicit, as std::atomic's
    if (!std::is_constant_evaluated()) {
      if (seam::Memory* const memory = seam::memory()) memory->make(this);
    }
  }
  SimWord(const SimWord&) = delete;
  SimWord& operator=(const SimWord&) = delete;

  T newest() const { return value_.load(std::memory_order_seq_cst); }

  T load(std::memory_order order) const {
    seam::Memory* const memory = seam::memory();
    return memory == nullptr ? value_.load(order) : of(memory->load(this, bits(newest()), order));
  }
  void store(T value, std::memory_order order) {
    if (seam::Memory* const memory = seam::memory()) memory->store(this, bits(newest()), bits(value), order);
    value_.store(value, order);
  }
  // Read-modify-writes find the newest value, whatever their order.
  T exchange(T value, std::memory_order order) {
    note(value, order);
    return value_.exchange(value, order);
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    seam::Memory* const memory = seam::memory();
    if (memory == nullptr) return value_.compare_exchange_strong(expected, desired, success, failure);
    const uint64_t wanted = bits(expected);
    const uint64_t found = memory->compare(this, bits(newest()), {wanted, bits(desired), success, failure});
    expected = of(found);
    if (found != wanted) return false;
    value_.store(desired, std::memory_order_seq_cst);
    return true;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order order) {
    return compare_exchange_strong(expected, desired, order, failing(order));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order success, std::memory_order failure) {
    return compare_exchange_strong(expected, desired, success, failure);
  }
  T fetch_add(T by, std::memory_order order) {
    note(newest() + by, order);
    return value_.fetch_add(by, order);
  }
  T fetch_sub(T by, std::memory_order order) {
    note(newest() - by, order);
    return value_.fetch_sub(by, order);
  }
  T fetch_or(T by, std::memory_order order) {
    note(newest() | by, order);
    return value_.fetch_or(by, order);
  }
  T fetch_and(T by, std::memory_order order) {
    note(newest() & by, order);
    return value_.fetch_and(by, order);
  }

  void wait(T old, std::memory_order order) const { value_.wait(old, order); }
  void notify_one() { value_.notify_one(); }
  void notify_all() { value_.notify_all(); }

 private:
  static_assert(sizeof(T) <= sizeof(uint64_t));
  static uint64_t bits(T value) {
    uint64_t out = 0;
    std::memcpy(&out, &value, sizeof(T));
    return out;
  }
  static T of(uint64_t bits) {
    T out;
    std::memcpy(static_cast<void*>(&out), &bits, sizeof(T));  // its copies are of bytes, as atomics require
    return out;
  }
  static std::memory_order failing(std::memory_order order) {
    return order == std::memory_order_acq_rel ? std::memory_order_acquire : order;
  }
  template <class Value>  // as wide as arithmetic makes it
  void note(Value value, std::memory_order order) {
    if (seam::Memory* const memory = seam::memory())
      memory->change(this, bits(newest()), bits(static_cast<T>(value)), order);
  }

  std::atomic<T> value_;
};

}  // namespace heddle

#endif
