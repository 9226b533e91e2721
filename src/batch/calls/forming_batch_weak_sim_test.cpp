// The words of a forming batch under the orders that forming_batch.h states.
#include <doctest/doctest.h>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "batch/calls/forming_batch.h"
#include "device/completing_queue_fixture.h"

namespace heddle::batch {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

// Of so many seats. Nothing asks its slot for memory.
struct Seats {
  explicit Seats(size_t count)
      : batch(layout, static_cast<int64_t>(count),
              std::make_shared<runtime::Slot>(nullptr, true, std::make_shared<runtime::Slot::Held>())) {
    batch.seats = batch.living = count;
  }
  RowLayout layout = *RowLayout::make({}, {}, {}, false);
  FormingBatch batch;
};

TEST_CASE("weak orders: of a batch that is taken one thread learns that all is written, and sees all rows") {
  for (const int count : {2, 3}) {
    explore({"batch_written_weak", count, 2, 2, true, 2}, [](Simulation& sim, int threads) {
      Seats seats(static_cast<size_t>(threads - 1));
      std::vector<Watched<int>> rows(seats.batch.seats);
      Atomic<int> leaders{0};
      at_once(sim, threads, [&](int i) {
        if (i != 0) rows[static_cast<size_t>(i - 1)].set(i);
        if (!(i == 0 ? seats.batch.is_written_when_taken() : seats.batch.is_last_to_write(i == 1))) return;
        leaders.add_relaxed(1);
        for (int seat = 1; seat < threads; ++seat)
          sim.expect(rows[static_cast<size_t>(seat - 1)].get() == seat, "the rows of each seat");
      });
      sim.expect(leaders.newest() == 1, "one leads");
    });
  }
}

TEST_CASE(
    "weak orders: of what a seat is told while it is left empty one acts, and finds who stands in for it") {
  explore({"seat_empty_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    Member member;
    Watched<int> absent(0);
    bool took = false, passed_on = false;
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        absent.set(1);
        member.leave_empty();
        took = member.seat.take(Seat::Note::ask);
      } else {
        passed_on = !member.tell(Seat::Note::ask);
        if (passed_on) sim.expect(absent.get() == 1, "what stands in for the thread");
      }
    });
    sim.expect(took != passed_on, "one of them, and once");
  });
}

TEST_CASE("weak orders: who finds that a batch is answered, or is told, sees its result") {
  explore({"batch_answer_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    Seats seats(1);
    Watched<int> result(0);
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        result.set(5);
        seats.batch.show_answer();
        seats.batch.tell_next();
        return;
      }
      const bool told = seats.batch.members[0].seat.take(Seat::Note::done);
      if (told || seats.batch.is_answered()) sim.expect(result.get() == 5, "the result");
    });
    sim.expect(seats.batch.is_answered(), "it is shown");
  });
}

TEST_CASE("weak orders: who claims the end of a run has what was written before it was shown") {
  for (const int count : {2, 3}) {
    explore({"batch_end_weak", count, 2, 2, true, 2}, [](Simulation& sim, int threads) {
      RunEnd end;
      device::CompletingQueue queue;
      queue.advance(1);
      Watched<int> run(0);
      Atomic<int> claims{0};
      at_once(sim, threads, [&](int i) {
        if (i == 0) {
          run.set(1);
          end.show(queue.timeline(), 1);
        }
        if (!end.claim_if_over()) return;
        sim.expect(run.get() == 1, "the run");
        run.set(2);
        claims.add_relaxed(1);
      });
      sim.expect(claims.newest() <= 1, "one claims it");
    });
  }
}

}  // namespace
}  // namespace heddle::batch
