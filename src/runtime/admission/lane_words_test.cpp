#include "runtime/admission/lane_words.h"

#include <doctest/doctest.h>

#include <array>

#include "base/thread.h"

namespace heddle::runtime {

namespace {

constexpr uint64_t kMe = 8;

struct Opened : LaneWords {
  explicit Opened(int lanes) { open(lanes, kFree); }
};

}  // namespace

TEST_CASE("a lane has one owner, and none above the bound is taken") {
  Opened words(3);
  CHECK(words.try_take(kMe, 2) != words.try_take(kMe, 2));
  CHECK(words.try_take(kMe, 2) == LaneWords::kNone);
  CHECK(words.try_take(kMe, 3) == 2);
  CHECK(words.count(kMe) == 3);
  CHECK_FALSE(words.give_back(1));
  CHECK(words.owner(1) == LaneWords::kFree);
  CHECK(words.try_take(kMe + 8, 3) == 1);
}

TEST_CASE("a thread gets the lane that it had last") {
  Opened words(4);
  const int mine = words.try_take(kMe, 4);
  int other = LaneWords::kNone;
  Thread("other", [&] {
    other = words.try_take(kMe, 4);
    static_cast<void>(words.give_back(other));
    CHECK(words.try_take(kMe, 4) == other);
    static_cast<void>(words.give_back(other));
  }).join();
  CHECK(other != mine);
  static_cast<void>(words.give_back(mine));
  CHECK(words.try_take(kMe, 4) == mine);
}

TEST_CASE("past parked callers no lane is taken, and who gives one back is told of them") {
  Opened words(2);
  const int mine = words.try_take(kMe, 2);
  words.park();
  CHECK(words.try_take(kMe, 2) == LaneWords::kNone);
  CHECK(words.give_back(mine));
  CHECK(words.take_parked(kMe) != words.take_parked(kMe));
  CHECK(words.take_parked(kMe) == LaneWords::kNone);
  words.unpark();
  CHECK_FALSE(words.give_back(0));
  CHECK(words.try_take(kMe, 2) == 0);
}

TEST_CASE("200 lanes have one owner each under contention") {
  constexpr int kLanes = 200, kThreads = 8, kTimes = 5000;
  Opened words(kLanes);
  std::array<Atomic<int>, kLanes> owners;
  Atomic<uint64_t> taken{0}, shared{0};
  run_together(kThreads, [&](int) {
    for (int i = 0; i < kTimes; ++i) {
      const int lane = words.try_take(kMe, i % 2 == 0 ? 2 : kLanes);
      if (lane == LaneWords::kNone) continue;
      if (owners[static_cast<size_t>(lane)].add_acq_rel(1) != 0) shared.add_relaxed(1);
      taken.add_relaxed(1);
      owners[static_cast<size_t>(lane)].sub_acq_rel(1);
      if (words.give_back(lane)) shared.add_relaxed(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(taken.load_relaxed() >= kThreads * kTimes / 2);  // of 200 lanes one is always free
  CHECK(words.count(LaneWords::kFree) == kLanes);
}

}  // namespace heddle::runtime
