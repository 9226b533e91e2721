#include "runtime/streams/free_word.h"

#include <doctest/doctest.h>

#include <array>

#include "base/thread.h"

namespace heddle::runtime {

TEST_CASE("places are taken lowest first, and none twice") {
  FreeWord word(FreeWord::first(3));
  CHECK(word.try_take() == 0);
  CHECK(word.try_take() == 1);
  CHECK(word.try_take() == 2);
  CHECK(word.try_take() == FreeWord::kNone);
  CHECK(word.try_give_back(1));
  CHECK(word.try_take_latest() == 1);
}

TEST_CASE("while callers are parked nothing is taken or given back past them") {
  FreeWord word(FreeWord::first(2));
  REQUIRE(word.try_take() == 0);
  word.park();
  CHECK(word.try_take() == FreeWord::kNone);
  CHECK_FALSE(word.try_give_back(0));
  word.put_parked(0);
  CHECK(word.take_parked() == 0);
  CHECK(word.take_parked() == 1);
  CHECK(word.take_parked() == FreeWord::kNone);
  word.unpark();
  CHECK(word.try_take() == FreeWord::kNone);
  CHECK(word.try_give_back(1));
  CHECK(word.free() == 2);
}

TEST_CASE("63 places have one owner each under contention") {
  FreeWord word(FreeWord::first(FreeWord::kMaxPlaces));
  std::array<Atomic<int>, FreeWord::kMaxPlaces> owners;
  Atomic<uint64_t> taken{0}, shared{0};
  run_together(8, [&](int) {
    for (int i = 0; i < 5000; ++i) {
      const int place = word.try_take();
      if (place == FreeWord::kNone) continue;
      if (owners[static_cast<size_t>(place)].add_acq_rel(1) != 0) shared.add_relaxed(1);
      taken.add_relaxed(1);
      owners[static_cast<size_t>(place)].sub_acq_rel(1);
      while (!word.try_give_back(place)) shared.add_relaxed(1);
    }
  });
  CHECK(shared.load_relaxed() == 0);
  CHECK(taken.load_relaxed() == 8 * 5000);  // there are more places than threads
  CHECK(word.free() == FreeWord::first(FreeWord::kMaxPlaces));
}

}  // namespace heddle::runtime
