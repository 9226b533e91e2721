#include "base/atomic.h"

#include <doctest/doctest.h>

#include "base/thread.h"

namespace heddle {
namespace {

TEST_CASE("every change returns the value before it") {
  Atomic<int> a(5);
  CHECK(a.add_relaxed(1) == 5);
  CHECK(a.add_release(1) == 6);
  CHECK(a.add_acq_rel(1) == 7);
  CHECK(a.add_seq_cst(1) == 8);
  CHECK(a.sub_relaxed(1) == 9);
  CHECK(a.sub_release(1) == 8);
  CHECK(a.sub_acq_rel(1) == 7);
  CHECK(a.or_acq_rel(0b1001) == 6);
  CHECK(a.and_acq_rel(0b1010) == 0b1111);
  CHECK(a.exchange_acq_rel(3) == 0b1010);
  CHECK(a.max_relaxed(2) == 3);
  CHECK(a.max_relaxed(9) == 3);
  CHECK(a.load_relaxed() == 9);
}

TEST_CASE("a failed compare-and-swap tells what it found") {
  Atomic<int> a(1);
  int expected = 2;
  CHECK(!a.cas_strong_acq_rel(expected, 7));
  CHECK(expected == 1);
  CHECK(a.cas_strong_acq_rel(expected, 7));
  while (!a.cas_weak_acq_rel(expected, 8)) {
  }
  CHECK(a.load_acquire() == 8);
}

TEST_CASE("additions of many threads are all counted and the maximum is the largest") {
  Atomic<uint64_t> sum, top;
  run_together(8, [&](int thread) {
    for (uint64_t i = 0; i < 5000; ++i) {
      sum.add_relaxed(i);
      top.max_relaxed(i * 8 + static_cast<uint64_t>(thread));
    }
  });
  CHECK(sum.load_relaxed() == 8 * (4999u * 5000 / 2));
  CHECK(top.load_relaxed() == 4999u * 8 + 7);
}

TEST_CASE("what is written before a release is visible after the acquire that sees it") {
  for (int round = 0; round < 200; ++round) {
    int data = 0, seen = -1;
    Atomic<bool> ready;
    run_together(2, [&](int thread) {
      if (thread == 0) {
        data = round + 1;
        ready.store_release(true);
        ready.notify_one();
      } else {
        ready.wait(false);
        seen = data;
      }
    });
    REQUIRE(seen == round + 1);
  }
}

TEST_CASE("with seq_cst, two threads that write theirs and read the other's do not both miss") {
  int both_missed = 0;
  for (int round = 0; round < 500; ++round) {
    Atomic<int> x, y;
    int saw[2] = {-1, -1};
    run_together(2, [&](int thread) {
      Atomic<int>& mine = thread == 0 ? x : y;
      mine.store_seq_cst(1);
      saw[thread] = (thread == 0 ? y : x).load_seq_cst();
    });
    both_missed += saw[0] == 0 && saw[1] == 0 ? 1 : 0;
  }
  CHECK(both_missed == 0);
}

}  // namespace
}  // namespace heddle
