#include "runtime/admission/owner_words.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <random>
#include <vector>

#include "base/thread.h"

namespace heddle::runtime {

namespace {

constexpr uint64_t kMe = 8;

struct Opened : OwnerWords {
  explicit Opened(int places) { open(places, kFree); }
  int take(int most) { return try_take(kMe, last(), most); }
};

}  // namespace

TEST_CASE("a place has one owner, and none above the bound is taken") {
  Opened words(3);
  CHECK(words.take(2) == 0);
  CHECK(words.take(2) == 1);
  CHECK(words.take(2) == OwnerWords::kNone);
  CHECK(words.take(3) == 2);
  CHECK(words.count(kMe) == 3);
  CHECK_FALSE(words.give_back(1));
  CHECK(words.owner(1) == OwnerWords::kFree);
  CHECK(words.try_take(kMe + 8, 2, 3) == 1);
  CHECK(words.owner(1) == kMe + 8);
}

TEST_CASE("a thread gets the place that it had last, and the next one in turn when that is taken") {
  Opened words(4);
  const int mine = words.take(4);
  int other = OwnerWords::kNone;
  Thread("other", [&] {
    other = words.take(4);
    static_cast<void>(words.give_back(other));
    CHECK(words.take(4) == other);
    static_cast<void>(words.give_back(other));
  }).join();
  CHECK(other == mine + 1);
  static_cast<void>(words.give_back(mine));
  CHECK(words.take(4) == mine);
  CHECK(words.take(4) == mine + 1);
  CHECK(words.last() == mine + 1);
}

TEST_CASE("a place that was handed over is the thread's last one") {
  Opened words(3);
  REQUIRE(words.try_take_at(0, kMe));
  words.park();
  const int place = words.take_parked(kMe + 8);
  words.unpark();
  words.pass_to(place, kMe);
  CHECK(words.owner(1) == kMe);
  CHECK(words.last() == 1);
  CHECK_FALSE(words.give_back(0));
  CHECK_FALSE(words.give_back(1));
  CHECK(words.take(3) == 1);
}

TEST_CASE("a thread remembers a last place of four OwnerWords, and none of one that has ended") {
  std::vector<std::unique_ptr<Opened>> words;
  for (int i = 0; i < 4; ++i) words.push_back(std::make_unique<Opened>(8));
  for (int i = 0; i < 4; ++i) CHECK(words[static_cast<size_t>(i)]->try_take(kMe, i + 3, 8) == i + 3);
  for (int i = 0; i < 4; ++i) CHECK(words[static_cast<size_t>(i)]->last() == i + 3);
  words.push_back(std::make_unique<Opened>(8));
  CHECK(words.back()->last() == 0);
  CHECK(words[0]->last() == 0);  // the one longest known makes room
  for (int i = 0; i < 100; ++i) {
    Opened next(8);
    CHECK(next.last() == 0);
    CHECK(next.try_take(kMe, 5, 8) == 5);
  }
}

TEST_CASE("past parked callers no place is taken, and who gives one back is told of them") {
  Opened words(2);
  const int mine = words.take(2);
  words.park();
  CHECK(words.take(2) == OwnerWords::kNone);
  CHECK(words.give_back(mine));
  CHECK(words.take_parked(kMe) == 0);
  CHECK(words.take_parked(kMe) == 1);
  CHECK(words.take_parked(kMe) == OwnerWords::kNone);
  words.unpark();
  CHECK(words.take(2) == OwnerWords::kNone);
  CHECK_FALSE(words.give_back(0));
  CHECK(words.take(2) == 0);
}

TEST_CASE("200 places have one owner each under contention") {
  constexpr int kPlaces = 200, kThreads = 8, kTimes = 5000;
  Opened words(kPlaces);
  std::array<Atomic<int>, kPlaces> owners;
  Atomic<uint64_t> taken{0}, shared{0};
  run_together(kThreads, [&](int) {
    for (int i = 0; i < kTimes; ++i) {
      const int place = words.take(i % 2 == 0 ? 2 : kPlaces);
      if (place == OwnerWords::kNone) continue;
      if (owners[static_cast<size_t>(place)].add_acq_rel(1) != 0) shared.add_relaxed(1);
      taken.add_relaxed(1);
      owners[static_cast<size_t>(place)].sub_acq_rel(1);
      if (words.give_back(place)) shared.add_relaxed(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(taken.load_relaxed() >= kThreads * kTimes / 2);  // of 200 places one is always free
  CHECK(words.count(OwnerWords::kFree) == kPlaces);
}

TEST_CASE("twenty-four callers that come and go at random end with places of their own, where they stay") {
  constexpr size_t kCallers = 24;
  constexpr int kSteps = 100'000, kPlaces = 31;
  Opened words(kPlaces);
  struct Caller {
    int last = 0;  // as if each had a thread of its own
    bool inside = false;
  };
  std::array<Caller, kCallers> callers;
  std::minstd_rand random(7);
  int came = 0, moved_late = 0;
  for (int step = 0; step < kSteps; ++step) {
    const size_t who = random() % kCallers;
    Caller& caller = callers[who];
    if (!caller.inside && random() % 3 != 0) continue;
    if (caller.inside) {
      static_cast<void>(words.give_back(caller.last));
    } else {
      const int place = words.try_take(kMe + who, caller.last, kPlaces);
      REQUIRE(place != OwnerWords::kNone);
      ++came;
      if (step > kSteps / 2 && place != caller.last) ++moved_late;
      caller.last = place;
    }
    caller.inside = !caller.inside;
  }
  CHECK(came > kSteps / 6);
  CHECK(moved_late == 0);
}

}  // namespace heddle::runtime
