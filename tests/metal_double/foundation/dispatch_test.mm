// Queues, semaphores, groups and once keep libdispatch's promises.
#import <dispatch/dispatch.h>

#include <doctest/doctest.h>

#include <atomic>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/metal_double/dying_fixture.h"

TEST_CASE("a serial queue runs one item at a time, in the order they came, sync ones on their caller") {
  dispatch_queue_t const queue = dispatch_queue_create("order", DISPATCH_QUEUE_SERIAL);
  __block std::vector<int> order;
  for (int i = 0; i < 100; ++i) {
    dispatch_async(queue, ^{
      order.push_back(i);
    });
  }
  const std::thread::id here = std::this_thread::get_id();
  __block bool on_caller = false;
  dispatch_sync(queue, ^{
    on_caller = std::this_thread::get_id() == here;
    order.push_back(100);
  });
  REQUIRE(order.size() == 101);
  for (int i = 0; i <= 100; ++i) CHECK(order[static_cast<size_t>(i)] == i);
  CHECK(on_caller);
  CHECK(std::string_view(dispatch_queue_get_label(queue)) == "order");
  dispatch_release(queue);
}

TEST_CASE("many threads on one queue never meet inside it") {
  dispatch_queue_t const queue = dispatch_queue_create("exclusive", DISPATCH_QUEUE_SERIAL);
  int plain = 0;
  int* const at = &plain;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([=] {
      for (int i = 0; i < 200; ++i) {
        if (i % 2) {
          dispatch_async(queue, ^{
            ++*at;
          });
        } else {
          dispatch_sync(queue, ^{
            ++*at;
          });
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  dispatch_sync(queue, ^{
                });
  CHECK(plain == 1600);
  dispatch_release(queue);
}

TEST_CASE("an exception leaves dispatch_sync and the queue goes on") {
  dispatch_queue_t const queue = dispatch_queue_create("throws", DISPATCH_QUEUE_SERIAL);
  CHECK_THROWS_AS(dispatch_sync(queue,
                                ^{
                                  throw std::runtime_error("out");
                                }),
                  std::runtime_error);
  __block bool ran = false;
  dispatch_sync(queue, ^{
    ran = true;
  });
  CHECK(ran);
  dispatch_release(queue);
}

TEST_CASE("a queue's specific value is seen on it, and only there; a released queue runs its items first") {
  static const char key = 0;
  int value = 7;
  dispatch_queue_t const queue = dispatch_queue_create("specific", DISPATCH_QUEUE_SERIAL);
  dispatch_queue_set_specific(queue, &key, &value, nullptr);
  CHECK(dispatch_get_specific(&key) == nullptr);
  __block void* seen = nullptr;
  dispatch_semaphore_t const done = dispatch_semaphore_create(0);
  dispatch_async(queue, ^{
    seen = dispatch_get_specific(&key);
    dispatch_semaphore_signal(done);
  });
  dispatch_release(queue);
  CHECK(dispatch_semaphore_wait(done, DISPATCH_TIME_FOREVER) == 0);
  CHECK(seen == &value);
  dispatch_release(done);
}

TEST_CASE("semaphores and groups wait, and give up at their deadline") {
  dispatch_semaphore_t const semaphore = dispatch_semaphore_create(1);
  CHECK(dispatch_semaphore_wait(semaphore, dispatch_time(DISPATCH_TIME_NOW, 0)) == 0);
  CHECK(dispatch_semaphore_wait(semaphore, dispatch_time(DISPATCH_TIME_NOW, NSEC_PER_MSEC)) != 0);
  dispatch_group_t const group = dispatch_group_create();
  dispatch_group_enter(group);
  CHECK(dispatch_group_wait(group, dispatch_time(DISPATCH_TIME_NOW, NSEC_PER_MSEC)) != 0);
  std::thread leaver([=] { dispatch_group_leave(group); });
  CHECK(dispatch_group_wait(group, DISPATCH_TIME_FOREVER) == 0);
  leaver.join();
  dispatch_release(group);
  dispatch_release(semaphore);
}

TEST_CASE("dispatch_once runs once, and no thread passes before it has") {
  for (int round = 0; round < 50; ++round) {
    dispatch_once_t once = 0;
    int runs = 0;
    dispatch_once_t* const predicate = &once;
    int* const at = &runs;
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&wrong, at, predicate] {
        dispatch_once(predicate, ^{
          ++*at;
        });
        if (*at != 1) ++wrong;
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(wrong == 0);
  }
}

namespace {
using heddle::metal_double::Misuse;

void sync_onto_itself() {
  dispatch_queue_t const queue = dispatch_queue_create("itself", DISPATCH_QUEUE_SERIAL);
  dispatch_sync(queue, ^{
    dispatch_sync(queue, ^{
                  });
  });
}
void leave_unbalanced() { dispatch_group_leave(dispatch_group_create()); }
void unknown_selector() { [static_cast<id>(@"text") performSelector:NSSelectorFromString(@"nobodyHasThis")]; }
void object_uncaught() {  // on a thread of its own: doctest catches everything on its own
  std::thread([] {
    @autoreleasepool {
      [NSException raise:NSGenericException format:@"nobody catches"];
    }
  }).join();
}

constexpr Misuse kMisuses[] = {
    {"dispatch_sync onto itself", sync_onto_itself,
     "dispatch_sync called on queue already owned by current thread"},
    {"unbalanced leave", leave_unbalanced, "Unbalanced call to dispatch_group_leave()"},
    {"unknown selector", unknown_selector,
     "-[NSConstantString nobodyHasThis]: unrecognized selector sent to"},
    {"uncaught exception", object_uncaught, "Terminating app due to uncaught exception"},
};
}  // namespace

TEST_CASE("a child runs its misuse of Foundation" * doctest::skip()) {
  @autoreleasepool {
    heddle::metal_double::run_misuse_of_child(kMisuses);
  }
}
TEST_CASE("misuse of queues and objects aborts with the system's words") {
  heddle::metal_double::check_all_die(kMisuses, "a child runs its misuse of Foundation");
}
