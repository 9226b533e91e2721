#include "drivers/sim/hazards.h"

#include <doctest/doctest.h>

namespace heddle::sim {
namespace {

struct Books {
  Retired retired{1};
  AccessLog log;
  bool conflicts(const Access& access, Knowledge& known, bool tracked = false) {
    return log.record(access, tracked, &known, retired).has_value();
  }
};

Access read(Position position, Bytes bytes = {0, 8}) { return {bytes, false, position}; }
Access write(Position position, Bytes bytes = {0, 8}) { return {bytes, true, position}; }

}  // namespace

TEST_CASE("what knows of an earlier write may touch its bytes, what does not may touch others only") {
  Books books;
  Knowledge none, some;
  CHECK_FALSE(books.conflicts(write({1, 1}), none));
  CHECK(books.conflicts(read({2, 1}), none));
  CHECK(books.conflicts(write({2, 1}), none));
  CHECK_FALSE(books.conflicts(read({2, 1}, {8, 16}), none));
  some.learn_all_up_to({1, 1});
  CHECK_FALSE(books.conflicts(read({2, 2}), some));
}

TEST_CASE("reads do not order each other, and a write needs to know of all of them") {
  Books books;
  Knowledge none, one, both;
  CHECK_FALSE(books.conflicts(read({1, 1}), none));
  CHECK_FALSE(books.conflicts(read({2, 1}), none));
  one.learn_all_up_to({1, 1});
  CHECK(books.conflicts(write({3, 1}), one));
  both.learn(one);
  both.learn_all_up_to({2, 1});
  CHECK_FALSE(books.conflicts(write({3, 1}), both));
}

TEST_CASE("knowledge of one pass is not knowledge of those before it") {
  Knowledge known;
  known.learn_only({1, 3});
  CHECK(known.covers({1, 3}));
  CHECK_FALSE(known.covers({1, 2}));
  known.learn_all_up_to({1, 4});
  CHECK(known.covers({1, 2}));
  CHECK_FALSE(known.covers({1, 5}));
  Knowledge other;
  other.learn(known);
  CHECK(other.covers({1, 4}));
}

TEST_CASE("passes of one queue need to know of each other unless the device tracks them") {
  Books books;
  Knowledge none;
  CHECK_FALSE(books.conflicts(write({1, 1}), none));
  CHECK(books.conflicts(write({1, 2}), none));
  CHECK_FALSE(books.conflicts(write({1, 2}), none, true));
  CHECK(none.covers({1, 1}));
}

TEST_CASE("what a retired queue did is over for everyone") {
  Books books;
  Knowledge none, known;
  known.learn_all_up_to({70, 5});
  CHECK_FALSE(books.conflicts(write({70, 1}), none));
  books.retired.add(70);
  CHECK_FALSE(books.conflicts(write({2, 1}), none));
  known.forget(books.retired);
  CHECK_FALSE(known.covers({70, 1}));
}

TEST_CASE("retired queues are remembered however many there were, whatever the order in which they died") {
  Retired retired(1);
  for (QueueNumber queue = 1; queue <= 300'000; queue += 3) {
    for (const QueueNumber each : {queue + 2, queue, queue + 1}) {
      CHECK_FALSE(retired.contains(each));
      retired.add(each);
      CHECK(retired.contains(each));
    }
    CHECK_FALSE(retired.contains(queue + 3));
  }
  CHECK(retired.contains(1));
  CHECK(retired.contains(299'999));
}

TEST_CASE("a conflict is told with both positions") {
  CHECK(describe(write({1, 2}), read({3, 4})) ==
        "written by pass 2 of queue 1 and read by pass 4 of queue 3");
}

}  // namespace heddle::sim
