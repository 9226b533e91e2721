// dispatch_waits.mm: semaphores, groups, time and once.
#import <dispatch/dispatch.h>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>

namespace {

struct Counted {
  std::mutex lock;
  std::condition_variable changed;
  intptr_t count = 0;
};

// Zero when the predicate came to hold, as libdispatch answers.
template <class Predicate>
intptr_t wait(Counted& counted, std::unique_lock<std::mutex>& lock, dispatch_time_t deadline,
              Predicate predicate) {
  if (deadline == DISPATCH_TIME_FOREVER) {
    counted.changed.wait(lock, predicate);
    return 0;
  }
  const std::chrono::steady_clock::time_point end{std::chrono::nanoseconds(deadline)};
  return counted.changed.wait_until(lock, end, predicate) ? 0 : 1;
}

}  // namespace

@interface HeddleSemaphore : NSObject <OS_dispatch_semaphore> {
 @public
  Counted _counted;
}
@end
@interface HeddleGroup : NSObject <OS_dispatch_group> {
 @public
  Counted _counted;
}
@end

@implementation HeddleSemaphore
@end
@implementation HeddleGroup
@end

namespace {
Counted& of(dispatch_semaphore_t semaphore) { return ((HeddleSemaphore*)semaphore)->_counted; }
Counted& of(dispatch_group_t group) { return ((HeddleGroup*)group)->_counted; }
}  // namespace

dispatch_semaphore_t dispatch_semaphore_create(intptr_t value) {
  HeddleSemaphore* const made = [HeddleSemaphore new];
  made->_counted.count = value;
  return made;
}
intptr_t dispatch_semaphore_wait(dispatch_semaphore_t semaphore, dispatch_time_t timeout) {
  Counted& counted = of(semaphore);
  std::unique_lock lock(counted.lock);
  const intptr_t late = wait(counted, lock, timeout, [&] { return counted.count > 0; });
  if (!late) --counted.count;
  return late;
}
intptr_t dispatch_semaphore_signal(dispatch_semaphore_t semaphore) {
  Counted& counted = of(semaphore);
  const std::lock_guard lock(counted.lock);
  ++counted.count;
  counted.changed.notify_one();
  return 0;
}

dispatch_group_t dispatch_group_create(void) { return [HeddleGroup new]; }
void dispatch_group_enter(dispatch_group_t group) {
  Counted& counted = of(group);
  const std::lock_guard lock(counted.lock);
  ++counted.count;
}
void dispatch_group_leave(dispatch_group_t group) {
  Counted& counted = of(group);
  const std::lock_guard lock(counted.lock);
  if (counted.count == 0) {
    fprintf(stderr, "BUG IN CLIENT OF LIBDISPATCH: Unbalanced call to dispatch_group_leave()\n");
    abort();
  }
  if (--counted.count == 0) counted.changed.notify_all();
}
intptr_t dispatch_group_wait(dispatch_group_t group, dispatch_time_t timeout) {
  Counted& counted = of(group);
  std::unique_lock lock(counted.lock);
  return wait(counted, lock, timeout, [&] { return counted.count == 0; });
}

dispatch_time_t dispatch_time(dispatch_time_t when, int64_t nanoseconds) {
  if (when == DISPATCH_TIME_FOREVER) return when;
  if (when == DISPATCH_TIME_NOW) {
    when = static_cast<dispatch_time_t>(std::chrono::steady_clock::now().time_since_epoch().count());
  }
  return when + static_cast<dispatch_time_t>(nanoseconds);
}

namespace {
enum Once : dispatch_once_t { kUntouched = 0, kRunning = 1, kDone = ~dispatch_once_t{0} };
}

void dispatch_once(dispatch_once_t* predicate, NS_NOESCAPE dispatch_block_t block) {
  if (__atomic_load_n(predicate, __ATOMIC_ACQUIRE) == kDone) return;
  static Counted* const all = new Counted;  // one for every predicate: once is rare, and waiters are few
  {
    std::unique_lock lock(all->lock);
    all->changed.wait(lock, [&] { return __atomic_load_n(predicate, __ATOMIC_RELAXED) != kRunning; });
    if (__atomic_load_n(predicate, __ATOMIC_RELAXED) == kDone) return;
    __atomic_store_n(predicate, kRunning, __ATOMIC_RELAXED);
  }
  block();
  {
    const std::lock_guard lock(all->lock);
    __atomic_store_n(predicate, kDone, __ATOMIC_RELEASE);
  }
  all->changed.notify_all();
}
