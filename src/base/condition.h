// condition.h: where threads sleep until what a mutex guards has changed.
//
//   What       wait() gives up the mutex and sleeps; notify_one() and notify_all() wake. On Linux a count of
//              rings and a futex; elsewhere std::condition_variable.
//   Why        pthread_cond_t of glibc before 2.41 (Debian 12 has 2.36) can lose a wake-up when one thread
//              takes a signal that was meant for an earlier group of waiters (bug 25847): a caller would
//              sleep for ever. A count that a waiter reads under the mutex cannot be taken from it.
//   Ordering   A waiter reads rings_ under the mutex, counts itself, then unlocks. A notifier changes what
//              the mutex guards, under the mutex, then adds to rings_ and looks for sleepers. A waiter that
//              has not seen the change had the mutex first, so the notifier finds it counted. The kernel
//              compares rings_ again before it puts the waiter to sleep: it finds the ring, or the waiter is
//              woken. The mutex orders both counts: they are relaxed.
//   Threads    Any. wait() with the mutex held; notify with or without it.
//   Blocks     wait() until a ring or the deadline. It may also return for no reason: its user looks at what
//              it waits for, and waits again.
//   Lifetime   Outlives every wait and every notify.
#pragma once

#include "base/atomic.h"
#include "base/clock.h"
#include "base/futex.h"
#include "base/mutex.h"

#if !defined(__linux__)
#include <condition_variable>
#endif

namespace heddle {

#if defined(__linux__)

class Condition {
 public:
  Condition() = default;
  Condition(const Condition&) = delete;
  Condition& operator=(const Condition&) = delete;

  void wait(std::unique_lock<Mutex>& held, Deadline deadline);
  void notify_one() { ring(1); }
  void notify_all() { ring(futex::kAll); }

 private:
  void ring(int sleepers);

  // Waiters read it under their mutex, notifiers add to it: an equal value means no notification since.
  Atomic<uint32_t> rings_{0};
  // Waiters between the mutex and their return: at zero a notifier skips the system call.
  Atomic<uint32_t> sleepers_{0};
};

#else

class Condition {
 public:
  void wait(std::unique_lock<Mutex>& held, Deadline deadline) {
    if (deadline.is_never()) {
      changed_.wait(held);
    } else {
      changed_.wait_until(held, deadline.when());
    }
  }
  void notify_one() { changed_.notify_one(); }
  void notify_all() { changed_.notify_all(); }

 private:
  std::condition_variable changed_;
};

#endif

}  // namespace heddle
