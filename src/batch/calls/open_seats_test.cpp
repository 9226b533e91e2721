#include "batch/calls/open_seats.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/thread.h"
#include "base/yield.h"

namespace heddle::batch {

TEST_CASE("seats and rows are given out in order, to callers of the kind on show") {
  OpenSeats seats;
  CHECK(!seats.claim(0, 1));  // nothing is on show
  seats.show(5, 77, {2, 4}, {.ask_at = 7, .most = 9});
  CHECK(!seats.claim(78, 1));
  CHECK(!seats.claim(77, 6));  // more than are left
  const auto third = seats.claim(77, 2);
  REQUIRE(third.has_value());
  CHECK(third->desk == 5);
  CHECK(third->seat == 2);
  CHECK(third->first == 4);
  CHECK_FALSE(third->asks);
  const auto fourth = seats.claim(77, 3);  // from six rows to nine
  REQUIRE(fourth.has_value());
  CHECK(fourth->first == 6);
  CHECK(fourth->asks);
  CHECK(!seats.claim(77, 1));
  const OpenSeats::Taken all = seats.take_down();
  CHECK(all.seats == 4);
  CHECK(all.rows == 9);
  CHECK(!seats.claim(77, 1));
}

TEST_CASE("who takes the first seat asks, and who reaches the number, and nobody after") {
  OpenSeats seats;
  seats.show(0, 1, {}, {.ask_at = 3, .most = 6});
  std::vector<bool> asks;
  while (const auto claim = seats.claim(1, 1)) asks.push_back(claim->asks);
  CHECK(asks == std::vector<bool>{true, false, true, false, false, false});
}

TEST_CASE("limits that change hold from then on, and say what is taken already") {
  OpenSeats seats;
  seats.show(3, 9, {}, {.ask_at = 8, .most = 8});
  for (int i = 0; i < 4; ++i) REQUIRE(seats.claim(9, 1).has_value());
  CHECK(seats.allow({.ask_at = 2, .most = 3}).rows == 4);  // its writer learns that it is reached
  CHECK(!seats.claim(9, 1));
  seats.allow({.ask_at = 5, .most = OpenSeats::kRowsMost});
  const auto claim = seats.claim(9, 1);
  REQUIRE(claim.has_value());
  CHECK(claim->asks);
  CHECK(claim->seat == 4);
  CHECK(claim->desk == 3);
  CHECK(seats.taken().rows == 5);
}

TEST_CASE("the largest numbers fit the word") {
  OpenSeats seats;
  const auto most = static_cast<int64_t>(OpenSeats::kRowsMost);
  seats.show(OpenSeats::kDesks - 1, 0xffff, {static_cast<size_t>(most - 1), most - 1},
             {.ask_at = most, .most = most});
  const auto claim = seats.claim(0xffff, 1);
  REQUIRE(claim.has_value());
  CHECK(claim->desk == OpenSeats::kDesks - 1);
  CHECK(claim->seat == static_cast<size_t>(most - 1));
  CHECK(claim->first == most - 1);
  CHECK(seats.taken().rows == most);
}

// One thread shows batch after batch and changes limits meanwhile, others take seats: each row of each batch
// has one owner, and what is taken down is what was claimed.
TEST_CASE("rows that threads claim at once are disjoint, and none is lost when a batch is taken down") {
  constexpr int kClaimers = 4;
  constexpr size_t kBatches = 4000;
  constexpr int64_t kMost = 24;
  struct Batch {
    Atomic<int64_t> owners[kMost];  // how often each row was claimed
    Atomic<int64_t> claimed{0}, asked{0};
    int64_t taken = 0;
  };
  std::vector<Batch> batches(kBatches);
  OpenSeats seats;
  Atomic<size_t> shown{0};  // batch on show, modulo the desks its desk
  Atomic<bool> over{false};
  Atomic<int64_t> claims{0};
  run_together(kClaimers + 1, [&](int me) {
    if (me == 0) {
      for (size_t i = 0; i < kBatches; ++i) {
        while (i >= OpenSeats::kDesks && batches[i - OpenSeats::kDesks].claimed.load_relaxed() !=
                                             batches[i - OpenSeats::kDesks].taken) {
          give_way();  // until the desk is free
        }
        shown.store_release(i);
        const auto ask_at = static_cast<int64_t>(1 + i % kMost);
        seats.show(i % OpenSeats::kDesks, 1, {}, {.ask_at = ask_at, .most = kMost / 2});
        while (seats.taken().rows < static_cast<int64_t>(i % kMost) / 2) give_way();
        seats.allow({.ask_at = ask_at, .most = kMost});
        batches[i].taken = seats.take_down().rows;
      }
      over.store_release(true);
      return;
    }
    while (!over.load_acquire()) {
      const auto rows = static_cast<int64_t>(1 + me % 2);
      const auto claim = seats.claim(1, rows);
      if (!claim.has_value()) continue;
      // The desk names the batch: the one on show, or one shown less than kDesks before.
      size_t which = shown.load_acquire();
      while (which % OpenSeats::kDesks != claim->desk) --which;
      Batch& batch = batches[which];
      for (int64_t row = claim->first; row < claim->first + rows; ++row)
        batch.owners[static_cast<size_t>(row)].add_relaxed(1);
      batch.claimed.add_relaxed(rows);
      if (claim->asks) batch.asked.add_relaxed(1);
      claims.add_relaxed(1);
    }
  });
  int64_t wrong = 0;
  for (size_t i = 0; i < kBatches; ++i) {
    Batch& batch = batches[i];
    if (batch.claimed.load_relaxed() != batch.taken) ++wrong;
    for (int64_t row = 0; row < kMost; ++row) {
      if (batch.owners[static_cast<size_t>(row)].load_relaxed() != (row < batch.taken ? 1 : 0)) ++wrong;
    }
    if ((batch.asked.load_relaxed() > 0) != (batch.taken > 0)) ++wrong;
  }
  CHECK(wrong == 0);
  CHECK(claims.load_relaxed() > 0);
}

}  // namespace heddle::batch
