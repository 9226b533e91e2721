// Waits on a timeline under simulated schedules: one writer; waiters, some with deadlines; stamps, bells.
#include "device/timeline.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "device/completing_queue_fixture.h"

namespace heddle::device {
namespace {

using std::chrono::microseconds;
using test::holds_for_seeds;
using test::log_for_model;

constexpr uint64_t kSeedBetweenTheLooks = 200;

TEST_CASE(
    "simulated: a wait ends when its value is reached, or at its deadline, and sees what was done before") {
  holds_for_seeds(2000, [](Simulation& sim) {
    CompletingQueue queue;
    constexpr uint64_t kLast = 4;
    int done[kLast + 1] = {};  // written before advance(i), read after wait(i)
    Atomic<int> reached{0}, late{0};
    Thread completion("completion", [&] {
      for (uint64_t value = 1; value <= kLast; ++value) {
        if (sim.random(2) == 0) sim.pause(microseconds(sim.random(50)));
        done[value] = static_cast<int>(value);
        queue.advance(value);
      }
    });
    run_together(3, [&](int i) {
      const uint64_t value = 1 + sim.random(kLast);
      const Deadline deadline = i == 0 ? Deadline::never() : Deadline::in(microseconds(sim.random(100)));
      const Status status = queue.timeline()->wait(value, deadline);
      if (status.ok()) {
        sim.expect(done[value] == static_cast<int>(value), "what was done before is visible");
        reached.add_relaxed(1);
      } else {
        sim.expect(status.code() == Code::deadline && deadline.expired(), "late only after the deadline");
        late.add_relaxed(1);
      }
    });
    completion.join();
    sim.expect(reached.load_relaxed() + late.load_relaxed() == 3, "each wait had one end");
    sim.expect(queue.timeline()->reached() == kLast, "the queue went on");
  });
}

TEST_CASE("simulated: a failure ends every wait for what is not reached, with its cause") {
  holds_for_seeds(2000, [](Simulation& sim) {
    CompletingQueue queue;
    const uint64_t fails_after = sim.random(3);
    std::vector<Ref<const Stamp>> stamps(3);
    Thread completion("completion", [&] {
      for (uint64_t value = 1; value <= fails_after; ++value) queue.advance(value);
      queue.fail(Status::device_lost("gone"));
      queue.advance(9);
    });
    run_together(3, [&](int i) {
      const auto value = static_cast<uint64_t>(i + 1);
      stamps[static_cast<size_t>(i)] = queue.timeline()->stamp(value, Clock::real());
      const Status status = queue.timeline()->wait(value, Deadline::never());
      sim.expect(status.ok() == (value <= fails_after), "reached before the failure, or not at all");
      if (!status.ok()) sim.expect(status.message() == "gone", "the cause");
    });
    completion.join();
    for (const auto& stamp : stamps) sim.expect(stamp->filled(), "every stamp is filled");
  });
}

TEST_CASE(
    "simulated: a stamp that is waiting is not late, and one registered while its value comes is filled") {
  holds_for_seeds(2000, [](Simulation& sim) {
    constexpr uint64_t kLast = 3;
    CompletingQueue queue;
    ManualClock clock(TimePoint(std::chrono::seconds(1)));
    const Ref<const Stamp> waiting = queue.timeline()->stamp(kLast, clock);
    Ref<const Stamp> coming;
    Thread completion("completion", [&] {
      for (uint64_t value = 1; value <= kLast; ++value) queue.advance(value);
    });
    run_together(2, [&](int i) {
      if (i == 0) {
        coming = queue.timeline()->stamp(1 + sim.random(kLast), Clock::real());
      } else {
        while (!queue.timeline()->done(kLast)) give_way();
        clock.advance(std::chrono::seconds(1));
      }
    });
    completion.join();
    sim.expect(waiting->when() == TimePoint(std::chrono::seconds(1)), "its time is from before it was seen");
    sim.expect(coming->filled(), "the one that came while values did is filled");
  });
}

TEST_CASE("simulated: a value that is reached before the failure is reached for every wait") {
  const auto body = [](Simulation& sim) {
    CompletingQueue queue;
    Thread completion("completion", [&] {
      queue.advance(1);
      queue.fail(Status::device_lost("gone"));
    });
    sim.expect(queue.timeline()->wait(1, Deadline::never()).ok(), "its value was reached");
  };
  // Found by its seed: advance() and fail() came between the waiter's look at the value and at the failure.
  const SimulationReport found = simulate(kSeedBetweenTheLooks, body);
  CHECK_MESSAGE(found.ok(), found.failure);
  holds_for_seeds(2000, body);
}

TEST_CASE("simulated: a bell that is to ring at a value rings, and its sleeper is not forgotten") {
  holds_for_seeds(2000, [](Simulation& sim) {
    CompletingQueue one, other;
    const auto bell = std::make_shared<Bell>();
    one.timeline()->attach(bell);
    other.timeline()->attach(bell);
    uint64_t one_at = 0, other_at = 0;
    Thread reaper("reaper", [&] {
      while (one_at < 3 || other_at < 3) {
        const uint64_t seen = bell->rings();
        one_at = one.timeline()->reached();
        other_at = other.timeline()->reached();
        bool sleeps = one_at < 3 || other_at < 3;
        if (one_at < 3) sleeps = one.timeline()->ring_at(one_at + 1) && sleeps;
        if (other_at < 3) sleeps = other.timeline()->ring_at(other_at + 1) && sleeps;
        if (sleeps) bell->wait(seen);
      }
    });
    run_together(2, [&](int i) {
      CompletingQueue& mine = i == 0 ? one : other;
      for (uint64_t value = 1; value <= 3; ++value) mine.advance(value);
    });
    reaper.join();
    sim.expect(one_at == 3 && other_at == 3, "it has seen all");
  });
}

// Of the value 2 for threads with an even number and of 1 for the others, as the model has it.
uint64_t value_of(int thread) { return thread % 2 == 0 ? 2 : 1; }

// The completion path: to 1, and to 2 or into failure.
void complete(Simulation& sim, CompletingQueue& queue) {
  for (uint64_t pause = sim.random(12); pause > 0; --pause) yield_point("work");
  queue.advance(1);
  if (sim.random(3) != 0) return queue.advance(2);
  queue.fail(Status::device_lost("gone"));
}

void wait_as_in_model(Simulation& sim, CompletingQueue& queue, int thread, Deadline deadline) {
  const Status status = queue.timeline()->wait(value_of(thread), deadline);
  const bool late = status.code() == Code::deadline;
  sim.expect(!late || deadline.expired(), "late only after the deadline");
  seam::did("test.waited", status.ok() ? 1 : late ? 3 : 2);
}

TEST_CASE("replayed: timeline: waiters, one of them with a deadline, and a stamp beside an advance") {
  log_for_model("timeline", "wait", 80, [](Simulation& sim) {
    CompletingQueue queue;
    queue.timeline()->attach(std::make_shared<Bell>());
    Ref<const Stamp> stamp;
    run_together(4, [&](int thread) {
      sim.play(thread);
      if (thread == 3) return complete(sim, queue);
      if (thread == 2) {
        stamp = queue.timeline()->stamp(value_of(thread), Clock::real());
        return;
      }
      const bool patient = thread == 1 || sim.random(2) == 0;
      const Deadline deadline = patient ? Deadline::never() : Deadline::in(microseconds(sim.random(8)));
      wait_as_in_model(sim, queue, thread, deadline);
    });
    sim.expect(stamp->filled(), "the stamp is filled");
  });
}

TEST_CASE("replayed: timeline: bells that are to ring at a value, and a waiter") {
  log_for_model("timeline", "ring", 80, [](Simulation& sim) {
    CompletingQueue queue;
    const auto bell = std::make_shared<Bell>();
    queue.timeline()->attach(bell);
    run_together(4, [&](int thread) {
      sim.play(thread);
      if (thread == 3) return complete(sim, queue);
      if (thread == 0) return wait_as_in_model(sim, queue, thread, Deadline::never());
      uint64_t seen = bell->rings();
      if (!queue.timeline()->ring_at(2)) return;
      while (!queue.timeline()->done(2) && !queue.timeline()->failed()) {
        bell->wait(seen);
        seen = bell->rings();
      }
    });
  });
}

}  // namespace
}  // namespace heddle::device
