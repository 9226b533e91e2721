#include "base/made_once.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "base/atomic.h"
#include "base/thread.h"

namespace heddle {
namespace {

struct Living {
  explicit Living(Atomic<int>& living) : living(living) { living.add_relaxed(1); }
  ~Living() { living.sub_relaxed(1); }
  Living(const Living&) = delete;
  Living& operator=(const Living&) = delete;
  Atomic<int>& living;
};

TEST_CASE(
    "threads that ask first at the same time get one object, and the others that they made are deleted") {
  constexpr int kThreads = 4, kRounds = 50;
  static constinit Atomic<int> living{0};
  static constinit MadeOnce<Living> made[kRounds];
  for (int round = 1; round <= kRounds; ++round) {
    MadeOnce<Living>& once = made[round - 1];
    Atomic<int> inside{0};
    std::vector<Living*> got(kThreads);
    {
      std::vector<Thread> threads;
      for (int i = 0; i < kThreads; ++i) {
        threads.emplace_back("asks", [&, i] {
          got[static_cast<size_t>(i)] = &once.get([&] {
            inside.add_acq_rel(1);  // each waits for the others: all are making one
            while (inside.load_acquire() < kThreads) std::this_thread::yield();
            return Living(living);
          });
        });
      }
      for (Thread& thread : threads) thread.join();
    }
    for (const Living* object : got) CHECK(object == got[0]);
    CHECK(living.load_acquire() == round);
  }
}

TEST_CASE("an object whose making throws is made by the next who asks") {
  static constinit MadeOnce<const std::string> once;
  CHECK_THROWS_AS(once.get([]() -> std::string { throw 1; }), int);
  CHECK(once.get([] { return std::string("made"); }) == "made");
  CHECK(once.get([]() -> std::string { throw 1; }) == "made");
}

}  // namespace
}  // namespace heddle
