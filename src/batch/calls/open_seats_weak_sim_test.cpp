// Seats of the batch on show under the orders that open_seats.h states.
#include "batch/calls/open_seats.h"

#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"

namespace heddle::batch {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

TEST_CASE("weak orders: who takes a seat finds the desk as it was before the batch was shown") {
  for (const int count : {2, 3}) {
    explore({"open_seats_weak", count, 3, 3, true, 2}, [](Simulation& sim, int threads) {
      OpenSeats seats;
      Watched<int> desk(0);
      Atomic<int> claimed{0};
      OpenSeats::Taken all;
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          desk.set(5);
          seats.show(3, 1, {}, {.ask_at = 2, .most = 2});
          all = seats.take_down();
          return;
        }
        const auto claim = seats.claim(1, 1);
        if (!claim.has_value()) return;
        claimed.add_relaxed(1);
        sim.expect(claim->desk == 3 && desk.get() == 5, "the desk of the batch");
        sim.expect(claim->asks == (claim->seat == 0 || claim->first == 1),
                   "the first asks, and who reaches the number");
      });
      sim.expect(all.rows == claimed.newest() && all.seats == static_cast<size_t>(all.rows), "none is lost");
    });
  }
}

TEST_CASE("weak orders: who lowers the number learns that it is reached, or the caller who reaches it does") {
  explore({"open_seats_asks", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    OpenSeats seats;
    seats.show(0, 1, {1, 1}, {.ask_at = 4, .most = 4});
    bool caller_asks = false, writer_learns = false;
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        writer_learns = seats.allow({.ask_at = 2, .most = 4}).rows >= 2;
      } else {
        caller_asks = seats.claim(1, 1)->asks;
      }
    });
    sim.expect(caller_asks || writer_learns, "one of them learns it");
    sim.expect(seats.taken().rows == 2, "the seat is taken");
  });
}

}  // namespace
}  // namespace heddle::batch
