// sync.h: data that has no name outside its lock, and an order for locks.
//
//   What       Guarded<T, Rank> is a T, one mutex and one Condition. lock() gives a Held, the only
//              way to the T; the lock ends with the Held.
//   Invariant  A thread takes locks in strictly increasing Rank: never two of one rank, never the same one
//              twice. Debug builds (no NDEBUG) check every acquisition and abort with both ranks' names;
//              Clang's -Wthread-safety refuses to lock one Guarded twice in a function.
//   States     free -> held (lock, try_lock) -> waiting (wait: the lock is given up, then held again) ->
//              free.
//   Ordering   What was done under the lock before is visible to the next holder.
//   Threads    Any. A Held stays on the thread and in the place where it was made (Clang loses sight of one
//              that is moved); to end it early, give it a block of its own.
//   Blocks     lock() until the others let go; wait() until its predicate holds; wait_until() at most until
//              its deadline. wait() with a second lock held would hold that one for a stranger's time:
//              checked, aborts.
//   Lifetime   The Guarded outlives every Held and every waiter. Never return a reference into the T past its
//              Held. A lock never covers a call that may block or call out: such calls take a NoLocksHeld by
//              value.
//   Statistics set_lock_counting(true) counts, per rank, acquisitions, how many had to wait, and the longest
//              such wait. Off, it costs one relaxed load. Taking the lock again at the end of a wait() is not
//              counted.
//
//   Guarded<FreeBlocks, Rank::kAllocator> free_;
//   auto dead = free_.lock()->remove_idle_since(cutoff);       // the lock ends with the full expression
//   auto q = queue_.lock();
//   q.wait([&] { return q->closed || !q->items.empty(); });
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/atomic.h"
#include "base/clock.h"
#include "base/condition.h"
#include "base/mutex.h"
#include "base/thread_annotations.h"
#include "base/yield.h"

namespace heddle {

enum class Rank : uint8_t {  // outer to inner
  kBatch,
  kRegistry,
  kCache,
  kModel,
  kPool,
  kGovernor,
  kStream,
  kBuffer,
  kTimeline,
  kAllocator,
  kHelpers,
  kTrace,
  kLog,
};
inline constexpr int kRanks = static_cast<int>(Rank::kLog) + 1;
std::string_view name(Rank);

struct LockCounts {
  std::string_view name;  // of the rank
  uint64_t acquisitions = 0;
  uint64_t contentions = 0;
  uint64_t longest_wait_ns = 0;
};
void set_lock_counting(bool on);
std::vector<LockCounts> read_lock_counts();  // one entry per Rank, outer to inner
void clear_lock_counts();

// Asked every kInterruptPeriod, with no lock held, by threads in Guarded::wait_until() and Parker::wait():
// true ends the wait as if its deadline had passed. For hosts that must stay interruptible (Python's
// Ctrl-C). Null, the default: waits are not disturbed.
using InterruptCheck = bool (*)();
void ask_while_waiting(InterruptCheck check);
InterruptCheck interrupt_check();  // null: none was set
inline constexpr Duration kInterruptPeriod = std::chrono::milliseconds(50);

// Which ranks this thread holds. Called by Guarded and NoLocksHeld in debug builds only.
namespace lock_order {
void enter(Rank);  // aborts if the thread holds this or an inner rank
void leave(Rank);
void check_waits_alone(Rank);       // aborts if the thread holds any rank but this one
void check_none(const char* what);  // aborts if the thread holds any rank
}  // namespace lock_order

// Passed by value to calls that may block or call out. Making one states, and in debug builds checks, that
// this thread holds no Guarded.
class NoLocksHeld {
 public:
  NoLocksHeld() {
#ifndef NDEBUG
    lock_order::check_none("a call that may block");
#endif
  }
};

// A mutex that knows its rank and can count. Reached through Guarded only.
class HEDDLE_CAPABILITY("lock") RankedMutex {
 public:
  void lock(Rank rank) HEDDLE_ACQUIRE() HEDDLE_NO_ANALYSIS {
#ifndef NDEBUG
    lock_order::enter(rank);
#endif
    if (counting_.setting_relaxed()) [[unlikely]] {
      lock_counted(rank);
    } else if (!try_for_a_while()) {
      mutex_.lock();
    }
#if defined(HEDDLE_SIM)
    mutex_.set_name(name(rank).data());
#endif
  }
  bool try_lock(Rank rank) HEDDLE_NO_ANALYSIS {
    const bool got = mutex_.try_lock();
#ifndef NDEBUG
    if (got) lock_order::enter(rank);
#endif
    if (counting_.setting_relaxed()) [[unlikely]]
      count_try(rank, got);
    return got;
  }
  void unlock(Rank rank) HEDDLE_RELEASE() HEDDLE_NO_ANALYSIS {
    mutex_.unlock();
#ifndef NDEBUG
    lock_order::leave(rank);
#else
    static_cast<void>(rank);
#endif
  }

  template <class Pred>
  bool wait_until(Condition& changed, Rank rank, Deadline deadline, Pred pred) {
    return waiting(rank, [&](std::unique_lock<Mutex>& held) {
      for (;;) {
        const InterruptCheck check = interrupt_.load_acquire();
        const TimePoint now = check == nullptr ? TimePoint::min() : Clock::real().now();
        const bool sliced = check != nullptr && deadline.when() - now > kInterruptPeriod;
        if (!sliced) return wait_on(changed, held, deadline, pred);
        if (wait_on(changed, held, Deadline::at(now + kInterruptPeriod), pred)) return true;
        if (asked_without_lock(check, rank, held)) return pred();
      }
    });
  }
  template <class Pred>
  void wait(Condition& changed, Rank rank, Pred pred) {
    waiting(rank,
            [&](std::unique_lock<Mutex>& held) { return wait_on(changed, held, Deadline::never(), pred); });
  }

 private:
  friend void set_lock_counting(bool);
  friend void ask_while_waiting(InterruptCheck);
  friend InterruptCheck interrupt_check();
  struct Returner {  // also when the predicate throws, the Held is still the owner
    std::unique_lock<Mutex>& held;
    ~Returner() { held.release(); }
  };
  template <class Wait>
  bool waiting(Rank rank, Wait wait) HEDDLE_NO_ANALYSIS {
#ifndef NDEBUG
    lock_order::check_waits_alone(rank);
#else
    static_cast<void>(rank);
#endif
    std::unique_lock<Mutex> held(mutex_, std::adopt_lock);
    const Returner keep_locked{held};
    return wait(held);
  }
  template <class Pred>
  static bool wait_on(Condition& changed, std::unique_lock<Mutex>& held, Deadline deadline, Pred& pred) {
    while (!pred()) {
      if (deadline.expired()) return false;
      changed.wait(held, deadline);
    }
    return true;
  }
  static bool asked_without_lock(InterruptCheck check, Rank rank, std::unique_lock<Mutex>& held);
  // Most are held for less than it takes to sleep and be woken.
  bool try_for_a_while() HEDDLE_NO_ANALYSIS {
#if !defined(HEDDLE_SIM)
    if (mutex_.try_lock()) return true;
    for (Backoff pause; pause.spin();) {
      if (mutex_.try_lock()) return true;
    }
#endif
    return false;
  }
  void lock_counted(Rank) HEDDLE_NO_ANALYSIS;
  static void count_try(Rank, bool got);

  static Atomic<bool> counting_;  // a switch that orders nothing: an acquisition beside it may be missed
  // A function that lives as long as the process; released when set, acquired when used.
  static Atomic<InterruptCheck> interrupt_;
  Mutex mutex_;
};

template <class T, Rank R>
class HEDDLE_CAPABILITY("guarded data") Guarded {
 public:
  template <class Data>
  class HEDDLE_SCOPED_CAPABILITY Hold {
   public:
    Hold(Hold&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() HEDDLE_RELEASE() {
      if (owner_ != nullptr) owner_->mutex_.unlock(R);
    }

    Data* operator->() const { return &owner_->data_; }
    Data& operator*() const { return owner_->data_; }

    // The predicate runs with the lock held, and reads only what this lock guards.
    template <class Pred>
    void wait(Pred pred) {
      owner_->mutex_.wait(owner_->changed_, R, std::move(pred));
    }
    // False: the deadline passed and the predicate still does not hold.
    template <class Pred>
    bool wait_until(Deadline deadline, Pred pred) {
      return owner_->mutex_.wait_until(owner_->changed_, R, deadline, std::move(pred));
    }
    void notify_one() { owner_->changed_.notify_one(); }
    void notify_all() { owner_->changed_.notify_all(); }

   private:
    friend Guarded;
    using Owner = std::conditional_t<std::is_const_v<Data>, const Guarded, Guarded>;
    explicit Hold(Owner* owner) HEDDLE_ACQUIRE(owner) : owner_(owner) {}
    Owner* owner_;
  };
  using Held = Hold<T>;
  using ConstHeld = Hold<const T>;

  template <class... Args>
    requires std::is_constructible_v<T, Args...>
  explicit Guarded(Args&&... args) : data_(std::forward<Args>(args)...) {}
  Guarded(const Guarded&) = delete;
  Guarded& operator=(const Guarded&) = delete;

  [[nodiscard]] Held lock() HEDDLE_ACQUIRE(this) HEDDLE_NO_ANALYSIS {
    mutex_.lock(R);
    return Held(this);
  }
  [[nodiscard]] ConstHeld lock() const HEDDLE_ACQUIRE(this) HEDDLE_NO_ANALYSIS {
    mutex_.lock(R);
    return ConstHeld(this);
  }
  [[nodiscard]] std::optional<Held> try_lock() HEDDLE_NO_ANALYSIS {
    if (!mutex_.try_lock(R)) return std::nullopt;
    return Held(this);
  }

  // Without the lock: the woken thread need not wait for us to let go. Only after the lock covered the
  // change.
  void notify_one() const { changed_.notify_one(); }
  void notify_all() const { changed_.notify_all(); }

 private:
  mutable RankedMutex mutex_;
  mutable Condition changed_;
  T data_;
};

}  // namespace heddle
