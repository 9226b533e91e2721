// The lock of one encoder: exclusion, fairness, warnings and the limit.
#include "lock.h"

#include <doctest/doctest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "counters.h"
#include "test_gpu.h"

using agx_guard::counters;
using agx_guard::Lock;

TEST_CASE("what several threads do under the lock is never mixed") {
  Lock lock;
  long count = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 20'000; ++i) {
        lock.lock("a test");
        count++;
        lock.unlock();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(count == 8 * 20'000);
  CHECK(lock.try_lock());
  CHECK(!lock.try_lock());
  lock.unlock();
}

TEST_CASE("a thread that locks in a loop does not keep another one out") {
  Lock lock;
  std::atomic<bool> stop{false};
  std::atomic<long> turns{0};
  std::thread greedy([&] {
    while (!stop) {
      lock.lock("greedy");
      turns++;
      lock.unlock();
    }
  });
  while (turns == 0) std::this_thread::yield();
  for (int i = 0; i < 50; ++i) {
    lock.lock("patient");
    lock.unlock();
  }
  stop = true;
  greedy.join();
  CHECK(turns > 0);
}

TEST_CASE("a long wait is warned of, again and again, and measured") {
  Lock lock;
  const uint64_t before = counters.lock_wait_warnings.read();
  lock.lock("the holder");
  std::thread waiting([&] {
    lock.lock("-[SomeEncoder endEncoding]");
    lock.unlock();
  });
  while (counters.lock_wait_warnings.read() < before + 2) std::this_thread::yield();
  lock.unlock();
  waiting.join();
  CHECK(counters.lock_contentions.read() > 0);
  CHECK(counters.lock_wait_us_max.read() >= 40'000);  // two warnings at AGX_GUARD_WARN_MS=20
}

TEST_CASE("child: a lock that is never given back" * doctest::skip()) {
  Lock lock;
  lock.lock("the holder");
  lock.lock("-[SomeEncoder endEncoding]");
}

TEST_CASE("AGX_GUARD_LIMIT_MS stops a process that waits for ever, and says for what") {
  const agx_guard_test::Child child = agx_guard_test::run_child(
      "AGX_GUARD_LIMIT_MS=30",
      agx_guard_test::folder() + "agx_guard_test --no-skip --test-case='child: a lock*'", false);
  INFO(child.output);
  CHECK(child.status != 0);
  CHECK(child.output.find("-[SomeEncoder endEncoding] has waited") != std::string::npos);
  CHECK(child.output.find("the limit of AGX_GUARD_LIMIT_MS; stopping") != std::string::npos);
}
