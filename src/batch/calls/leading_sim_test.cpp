// Which member of a batch leads it, and when it goes, under simulated schedules.
#include <doctest/doctest.h>

#include <stop_token>
#include <vector>

#include "base/simulation_fixture.h"
#include "batch/calls/coalescer_fixture.h"
#include "batch/calls/submission_fixture.h"

namespace heddle::batch {

using heddle::test::holds_for_seeds;
using heddle::test::without_stalls;
using std::chrono::microseconds;
using std::chrono::milliseconds;

namespace {

// Callers who were answered are waited for, for many times as long as a run takes here.
CoalescerOptions with_patience(int lanes) {
  CoalescerOptions options = with(lanes);
  options.door = false;
  options.cost = [](int64_t rows) { return milliseconds(40) + microseconds(rows); };
  return options;
}

void call_rows(Simulation& sim, Fixture& fixture, int64_t count, float start) {
  sim.expect(fixture.answers(count, start), "its own rows");
}

}  // namespace

TEST_CASE("simulated: the caller with whose rows a batch is due leads it") {
  holds_for_seeds(
      50,
      [](Simulation& sim) {
        Fixture fixture(with_patience(1));
        std::vector<uint32_t> leaders;
        fixture.kernel = [&](const device::Run&) {
          leaders.push_back(sim.thread_number());
          sim.pause(milliseconds(1));
          return Status();
        };
        Thread other("other", [&] {
          sim.pause(microseconds(500));
          call_rows(sim, fixture, 1, 10);  // waits for the one that runs, to come back
        });
        call_rows(sim, fixture, 1, 0);
        sim.pause(milliseconds(1));
        call_rows(sim, fixture, 1, 1);
        other.join();
        sim.expect(leaders == std::vector<uint32_t>(2, sim.thread_number()), "the last to come led both");
      },
      without_stalls());
}

// A batch of two lanes' callers is due with three rows or four, by whether one of its members has left.
TEST_CASE("simulated: who takes the last seat of a share that shrinks meanwhile does not wait for others") {
  holds_for_seeds(
      200,
      [](Simulation& sim) {
        Fixture fixture(with_patience(2));
        fixture.kernel = [&](const device::Run& run) {
          sim.pause(milliseconds(Fixture::at(run.inputs[0], 0, 0) == 1000 ? 200 : 1));
          return Status();
        };
        const TimePoint leaves = Clock::real().now() + milliseconds(4);
        Thread slow("slow", [&] { call_rows(sim, fixture, 1, 1000); });
        sim.pause(microseconds(100));
        Thread awaited("awaited", [&] { call_rows(sim, fixture, 4, 10); });
        sim.pause(microseconds(100));
        Thread stays("stays", [&] { call_rows(sim, fixture, 1, 20); });
        sim.pause(microseconds(100));
        Thread leaver("leaver", [&] {
          Rows rows(1, 30);
          const Status late = fixture.call(rows, Deadline::at(leaves)).status();
          sim.expect(late.code() == Code::deadline, "it leaves");
        });
        sim.pause(leaves - Clock::real().now() + Simulation::kStep * static_cast<int64_t>(sim.random(80)));
        call_rows(sim, fixture, 1, 40);
        sim.expect(Clock::real().now() - leaves < milliseconds(3), "it did not wait for the one expected");
      },
      without_stalls());
}

// Two have no place in one batch. The submission is cancelled beside any of its steps.
TEST_CASE("simulated: a batch that its members have left while it was written makes way for the next one") {
  holds_for_seeds(2000, [](Simulation& sim) {
    Fixture fixture(with(1, 3));
    fixture.kernel = [&](const device::Run&) {
      for (uint64_t steps = sim.random(200); steps > 0; --steps) yield_point("computes");
      return Status();
    };
    std::stop_source stop;
    stop.request_stop();
    Atomic<int> answers{0};
    run_together(3, [&](int thread) {
      for (uint64_t steps = sim.random(100); steps > 0; --steps) yield_point("comes");
      if (thread != 0) return call_rows(sim, fixture, 2, static_cast<float>(thread));
      const auto rows = std::make_shared<Rows>(2, 100.0F);
      const auto then = [&](const Result<std::vector<View>>& result) {
        sim.expect(result.ok() || result.status().code() == Code::cancelled, "its rows, or cancelled");
        answers.add_release(1);
        answers.notify_all();
      };
      sim.expect(fixture.coalescer
                     ->submit({submitted(rows->view(), then, rows), Deadline::never(), stop.get_token()})
                     .ok(),
                 "it is taken");
      answers.wait(0);
    });
    fixture.coalescer->close();
    sim.expect(answers.load_acquire() == 1, "it was answered once");
  });
}

}  // namespace heddle::batch
