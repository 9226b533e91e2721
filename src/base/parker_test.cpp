#include "base/parker.h"

#include <doctest/doctest.h>

#include "base/thread.h"

namespace heddle {

TEST_CASE("a wait returns what was told before it, and again until it is taken") {
  Parker parker;
  parker.tell(2);
  parker.tell(8);
  CHECK(parker.wait(Deadline::never()) == 10);
  parker.take(8);
  CHECK(parker.wait(Deadline::never()) == 2);
  parker.take(2);
  CHECK(parker.wait(Deadline::at(Clock::real().now())) == 0);
}

TEST_CASE("a wait ends at its deadline, and what is told later is kept") {
  Parker parker;
  const TimePoint end = Clock::real().now() + std::chrono::milliseconds(2);
  CHECK(parker.wait(Deadline::at(end)) == 0);
  CHECK(Clock::real().now() >= end);
  parker.tell(1);
  CHECK(parker.wait(Deadline::never()) == 1);
}

TEST_CASE("two threads that tell each other in turn lose no bit and see what was written before it") {
  constexpr uint64_t kRounds = 20'000;
  Parker parkers[2];
  uint64_t written[2] = {};  // by its thread, before it tells the other
  Atomic<uint64_t> wrong{0}, rounds{0};
  run_together(2, [&](int me) {
    const auto mine = static_cast<size_t>(me);
    for (uint64_t round = 1; round <= kRounds; ++round) {
      if (me == 0) {
        written[0] = round;
        parkers[1].tell(1);
      }
      if (parkers[mine].wait(Deadline::never()) != 1) wrong.add_relaxed(1);
      parkers[mine].take(1);
      if (written[1 - mine] != round) wrong.add_relaxed(1);
      if (me == 1) {
        written[1] = round;
        parkers[0].tell(1);
      }
      rounds.add_relaxed(1);
    }
  });
  CHECK(wrong.load_relaxed() == 0);
  CHECK(rounds.load_relaxed() == 2 * kRounds);
}

TEST_CASE("many threads tell one: each of their bits arrives") {
  constexpr int kThreads = 8;
  constexpr uint32_t kAll = (uint32_t{1} << kThreads) - 1;
  for (int round = 0; round < 500; ++round) {
    Parker parker;
    uint32_t seen = 0;
    Thread owner("owner", [&] {
      while (seen != kAll) {
        const uint32_t bits = parker.wait(Deadline::never());
        parker.take(bits);
        seen |= bits;
      }
    });
    run_together(kThreads, [&](int me) { parker.tell(uint32_t{1} << me); });
    owner.join();
    CHECK(seen == kAll);
  }
}

}  // namespace heddle
