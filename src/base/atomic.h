// atomic.h: an atomic whose every use names its memory order.
//
//   What       Atomic<T> wraps std::atomic<T>; the order is part of the method's name. No operators.
//   Ordering   relaxed    orders nothing: statistics, hints, ids
//              release    what this thread wrote before is visible to a thread that acquires the value
//              acquire    sees what the releasing thread wrote before
//              acq_rel    both, in one read-modify-write
//              seq_cst    all of these stand in one order that every thread agrees on: for protocols of the
//                         kind "I write mine, then read yours", where two threads must not both miss
//   Returns    add, sub, or, and, exchange and max return the value before the change.
//   Threads    Any. The declaration of each Atomic states its protocol: who writes, who reads, what a value
//              publishes.
//   Blocks     wait(old) sleeps until the value differs from `old` and a notify came; nothing else does.
//   Seams      In a simulation (base/seam.h) another thread may run before each operation; what is simulated
//              is their interleavings, all of them seq_cst, unless the simulation has weak orders
//              (base/weak_memory.h).
//   Lifetime   notify must not race with destruction: the waiter that saw the value may free the object.
#pragma once

#include <atomic>
#include <concepts>

#include "base/seam.h"
#include "base/sim_word.h"

namespace heddle {

template <class T>
class Atomic {
 public:
  explicit constexpr Atomic(T value = {}) : value_(value) {}
  Atomic(const Atomic&) = delete;
  Atomic& operator=(const Atomic&) = delete;

  T load_relaxed() const { return at("load").load(std::memory_order_relaxed); }
  T load_acquire() const { return at("load").load(std::memory_order_acquire); }
  T load_seq_cst() const { return at("load").load(std::memory_order_seq_cst); }

  // Of what is set before threads look at it: a seam, and no choice of a strategy's (base/strategy.h).
  T setting_relaxed() const {
    seam::pass("load", seam::kAtomic);
    seam::notice("load", &value_);
    return value_.load(std::memory_order_relaxed);
  }

  // Parts of a step that has begun, without a seam: for reads whose number no seed decides, as along a hash
  // table.
  T read_on_relaxed() const {
    seam::notice("load", &value_);
    return value_.load(std::memory_order_relaxed);
  }
  T read_on_seq_cst() const {
    seam::notice("load", &value_);
    return value_.load(std::memory_order_seq_cst);
  }

#if defined(HEDDLE_SIM)
  T newest() const { return value_.newest(); }  // as the kernel finds it, which compares under a lock
#endif

  void store_relaxed(T value) { at("store").store(value, std::memory_order_relaxed); }
  void store_release(T value) { at("store").store(value, std::memory_order_release); }
#ifndef HEDDLE_EMULATED
  void store_seq_cst(T value) {  // counts as one: processors make it one
    change("store").store(value, std::memory_order_seq_cst);
  }
#else
  // qemu-user on x86 lets a load pass the store before it, Arm's ldar and stlr included; not an exchange.
  void store_seq_cst(T value) { value_.exchange(value, std::memory_order_seq_cst); }
#endif

  T exchange_acq_rel(T value) { return change("exchange").exchange(value, std::memory_order_acq_rel); }

  // On failure `expected` becomes the value found, read with acquire.
  bool cas_weak_acq_rel(T& expected, T desired) {
    return change("cas").compare_exchange_weak(expected, desired, std::memory_order_acq_rel,
                                               std::memory_order_acquire);
  }
  bool cas_strong_acq_rel(T& expected, T desired) {
    return change("cas").compare_exchange_strong(expected, desired, std::memory_order_acq_rel,
                                                 std::memory_order_acquire);
  }

  bool cas_strong_seq_cst(T& expected, T desired) {
    return change("cas").compare_exchange_strong(expected, desired, std::memory_order_seq_cst);
  }

  T add_relaxed(T by)
    requires std::integral<T>
  {
    return change("add").fetch_add(by, std::memory_order_relaxed);
  }
  T add_release(T by)
    requires std::integral<T>
  {
    return change("add").fetch_add(by, std::memory_order_release);
  }
  T add_acq_rel(T by)
    requires std::integral<T>
  {
    return change("add").fetch_add(by, std::memory_order_acq_rel);
  }
  T add_seq_cst(T by)
    requires std::integral<T>
  {
    return change("add").fetch_add(by, std::memory_order_seq_cst);
  }
  T sub_relaxed(T by)
    requires std::integral<T>
  {
    return change("sub").fetch_sub(by, std::memory_order_relaxed);
  }
  T sub_release(T by)
    requires std::integral<T>
  {
    return change("sub").fetch_sub(by, std::memory_order_release);
  }
  T sub_acq_rel(T by)
    requires std::integral<T>
  {
    return change("sub").fetch_sub(by, std::memory_order_acq_rel);
  }
  T or_acq_rel(T bits)
    requires std::integral<T>
  {
    return change("or").fetch_or(bits, std::memory_order_acq_rel);
  }
  T or_seq_cst(T bits)
    requires std::integral<T>
  {
    return change("or").fetch_or(bits, std::memory_order_seq_cst);
  }
  T and_acq_rel(T bits)
    requires std::integral<T>
  {
    return change("and").fetch_and(bits, std::memory_order_acq_rel);
  }
  T and_seq_cst(T bits)
    requires std::integral<T>
  {
    return change("and").fetch_and(bits, std::memory_order_seq_cst);
  }
  T max_relaxed(T other) {
    T seen = load_relaxed();
    while (seen < other && !change("cas").compare_exchange_weak(seen, other, std::memory_order_relaxed,
                                                                std::memory_order_relaxed)) {
    }
    return seen;
  }

  // Returns once the value differs from `old`; reads with acquire.
  void wait(T old) const {
#if defined(HEDDLE_SIM)
    if (seam::simulated()) {
      while (load_acquire() == old) {  // who sleeps is compared with the newest value
        if (seam::Memory* const memory = seam::memory()) memory->look(this);
        if (newest() == old) seam::sleep({.key = this, .at = "atomic wait"});
      }
      return;
    }
#endif
    value_.wait(old, std::memory_order_acquire);
  }
  void notify_one() {
#if defined(HEDDLE_SIM)
    if (seam::simulated()) return seam::wake(this, 1, "notify");
#endif
    value_.notify_one();
  }
  void notify_all() {
#if defined(HEDDLE_SIM)
    if (seam::simulated()) return seam::wake(this, seam::kAll, "notify");
#endif
    value_.notify_all();
  }

 private:
#if defined(HEDDLE_SIM)
  using Word = SimWord<T>;
#else
  using Word = std::atomic<T>;
#endif

  [[gnu::always_inline]] const Word& at(const char* operation) const {
    seam::step(operation, seam::kAtomic, &value_);
    return value_;
  }
  [[gnu::always_inline]] Word& at(const char* operation) {
    seam::step(operation, seam::kAtomic, &value_);
    return value_;
  }
  [[gnu::always_inline]] Word& change(const char* operation) {
    seam::count_read_modify_write();
    return at(operation);
  }

  Word value_;
};

}  // namespace heddle
