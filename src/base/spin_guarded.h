// spin_guarded.h: a Guarded for data that its finder almost always finds free and keeps for some
// instructions.
//
//   What       As Guarded, with one word for a mutex: taking it is one compare-and-swap, giving it back a
//              plain store. For what is kept once per thread or per core, where others come rarely: they
//              take another one instead (try_lock), or wait for all of them to read a sum (lock).
//   Invariant  Held for a bounded number of instructions, memory of the host included, and never over a wait.
//              Its Rank stands in the order of Guarded's locks, checked in debug builds.
//   States     free -> held -> free.
//   Ordering   What was done under it before is visible to the next holder.
//   Threads    Any. A Held stays on the thread and in the place where it was made.
//   Blocks     lock(): pauses, then gives its core away, until the holder is done. try_lock() never.
#pragma once

#include <optional>
#include <utility>

#include "base/sync.h"

namespace heddle {

template <class T, Rank R>
class HEDDLE_CAPABILITY("guarded data") SpinGuarded {
 public:
  template <class Data>
  class HEDDLE_SCOPED_CAPABILITY Hold {
   public:
    Hold(Hold&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() HEDDLE_RELEASE() {
      if (owner_ != nullptr) owner_->give_back();
    }
    Data* operator->() const { return &owner_->data_; }
    Data& operator*() const { return owner_->data_; }

   private:
    friend SpinGuarded;
    using Owner = std::conditional_t<std::is_const_v<Data>, const SpinGuarded, SpinGuarded>;
    explicit Hold(Owner* owner) HEDDLE_ACQUIRE(owner) : owner_(owner) {}
    Owner* owner_;
  };

  SpinGuarded() = default;
  SpinGuarded(const SpinGuarded&) = delete;
  SpinGuarded& operator=(const SpinGuarded&) = delete;

  [[nodiscard]] Hold<T> lock() HEDDLE_ACQUIRE(this) HEDDLE_NO_ANALYSIS {
    take();
    return Hold<T>(this);
  }
  [[nodiscard]] Hold<const T> lock() const HEDDLE_ACQUIRE(this) HEDDLE_NO_ANALYSIS {
    take();
    return Hold<const T>(this);
  }
  [[nodiscard]] std::optional<Hold<T>> try_lock() HEDDLE_NO_ANALYSIS {
    if (!try_take()) return std::nullopt;
    return Hold<T>(this);
  }

 private:
  bool try_take() const {
    bool held = held_.load_relaxed();
    if (held || !held_.cas_strong_acq_rel(held, true)) return false;
#ifndef NDEBUG
    lock_order::enter(R);
#endif
    return true;
  }
  void take() const {
    Backoff backoff;
    while (!try_take()) {
      if (!backoff.spin()) give_way();
    }
  }
  void give_back() const {
#ifndef NDEBUG
    lock_order::leave(R);
#endif
    held_.store_release(false);
  }

  mutable Atomic<bool> held_{false};
  T data_;
};

}  // namespace heddle
