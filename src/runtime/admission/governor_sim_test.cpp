// The Governor under simulated schedules: every Permit is handed over exactly once, an exclusive hold is
// alone, and nobody is forgotten.
#include "runtime/admission/governor.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"

namespace heddle::runtime {

namespace {

using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;
using std::chrono::microseconds;

constexpr int kLanes = 2;

// What is on the device, by whoever holds a Permit or a hold.
struct OnDevice {
  Atomic<int> lanes[kLanes];
  Atomic<int> calls{0}, copies{0}, holders{0};

  void call(Simulation& sim, int lane) {
    sim.expect(lane >= 0 && lane < kLanes, "a lane's number");
    sim.expect(lanes[lane].add_acq_rel(1) == 0, "a lane has one owner");
    sim.expect(calls.add_acq_rel(1) < kLanes, "no more permits than the limit");
    sim.expect(holders.load_acquire() == 0, "no call during a hold");
    yield_point("on the device");
    sim.expect(holders.load_acquire() == 0, "no hold during a call");
    calls.sub_acq_rel(1);
    lanes[lane].sub_acq_rel(1);
  }
  void copy(Simulation& sim) {
    copies.add_acq_rel(1);
    sim.expect(holders.load_acquire() == 0, "no copy during a hold");
    yield_point("copy");
    sim.expect(holders.load_acquire() == 0, "no hold during a copy");
    copies.sub_acq_rel(1);
  }
  void hold(Simulation& sim) {
    sim.expect(holders.add_acq_rel(1) == 0, "one holder");
    yield_point("hold");
    sim.expect(calls.load_acquire() == 0 && copies.load_acquire() == 0, "a hold is alone");
    holders.sub_acq_rel(1);
  }
};

Deadline some_deadline(Simulation& sim) {
  return sim.random(3) == 0 ? Deadline::in(microseconds(sim.random(20))) : Deadline::never();
}

struct Totals {
  Atomic<int> entered{0}, late{0}, aside{0}, refused{0};
  // Whether there is something to give back.
  bool count(Simulation& sim, const Status& status, Deadline deadline, bool given, bool may_step_aside) {
    if (status.ok() && given) return entered.add_relaxed(1) >= 0;
    if (status.ok()) {
      sim.expect(may_step_aside, "only who asked for it is sent aside");
      aside.add_relaxed(1);
    } else if (status.code() == Code::deadline) {
      sim.expect(deadline.expired(), "late only after the deadline");
      late.add_relaxed(1);
    } else {
      sim.expect(status.code() == Code::unavailable, "refused as it was told");
      refused.add_relaxed(1);
    }
    return false;
  }
};

void check_idle(Simulation& sim, Governor& governor) {
  const Governor::Stats stats = governor.stats();
  sim.expect(stats.in_flight == 0 && stats.waiting == 0, "all permits are back, nobody waits");
  std::vector<Permit> permits;
  for (int i = 0; i < kLanes; ++i) {
    auto permit = governor.enter(ModelId{1}, Deadline::at(TimePoint()));
    sim.expect(permit.ok() && *permit, "every lane is free again");
    permits.push_back(std::move(*permit));
  }
  sim.expect(!governor.enter(ModelId{1}, Deadline::at(TimePoint())).ok(), "and no other one");
}

}  // namespace

TEST_CASE("simulated: calls of two models get every permit once, with deadlines among them") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto governor = Governor::make("d", kLanes);
    OnDevice on;
    Totals totals;
    run_together(4, [&](int thread) {
      for (int i = 0; i < 3; ++i) {
        const Deadline deadline = some_deadline(sim);
        const auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + thread % 2)}, deadline);
        if (totals.count(sim, permit.status(), deadline, permit.ok() && *permit, false))
          on.call(sim, permit->lane());
      }
    });
    const int answered = totals.entered.load_relaxed() + totals.late.load_relaxed();
    sim.expect(answered == 12, "each call had one answer");
    sim.expect(governor->stats().entered == static_cast<uint64_t>(totals.entered.load_relaxed()), "counted");
    check_idle(sim, *governor);
  });
}

TEST_CASE("simulated: calls, copies and exclusive holds exclude each other and all get through") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto governor = Governor::make("d", kLanes);
    OnDevice on;
    Totals totals;
    run_together(5, [&](int thread) {
      for (int i = 0; i < 2; ++i) {
        const Deadline deadline = some_deadline(sim);
        const DuringHold during = sim.random(2) == 0 ? DuringHold::wait : DuringHold::step_aside;
        const bool aside = during == DuringHold::step_aside;
        if (thread < 2) {
          const auto permit = governor->enter(ModelId{1}, deadline, during);
          if (totals.count(sim, permit.status(), deadline, permit.ok() && *permit, aside))
            on.call(sim, permit->lane());
        } else if (thread < 4) {
          const auto permit = governor->enter_copy(ModelId{9}, deadline, during);
          if (totals.count(sim, permit.status(), deadline, permit.ok() && *permit, aside)) on.copy(sim);
        } else {
          const auto hold = governor->exclusive(deadline);
          if (totals.count(sim, hold.status(), deadline, hold.ok(), false)) on.hold(sim);
        }
      }
    });
    const int answered =
        totals.entered.load_relaxed() + totals.late.load_relaxed() + totals.aside.load_relaxed();
    sim.expect(answered == 10, "each had one answer");
    check_idle(sim, *governor);
  });
}

TEST_CASE("simulated: two exclusive holders take turns, and the holder's own copies go on") {
  holds_for_seeds(1000, [](Simulation& sim) {
    const auto governor = Governor::make("d", kLanes);
    OnDevice on;
    Atomic<int> holds{0}, calls{0};
    run_together(4, [&](int thread) {
      for (int i = 0; i < 2; ++i) {
        if (thread < 2) {
          const auto hold = governor->exclusive(Deadline::never());
          sim.expect(hold.ok(), "a hold begins");
          const auto copy = governor->enter_copy(ModelId{9}, Deadline::at(TimePoint()));
          sim.expect(copy.ok() && *copy, "the holder copies");
          on.hold(sim);
          holds.add_relaxed(1);
        } else {
          const auto permit = governor->enter(ModelId{1}, Deadline::never());
          sim.expect(permit.ok(), "a call gets through between them");
          on.call(sim, permit->lane());
          calls.add_relaxed(1);
        }
      }
    });
    sim.expect(holds.load_relaxed() == 4 && calls.load_relaxed() == 4, "all got through");
    sim.expect(governor->stats().exclusives == 4, "counted");
    check_idle(sim, *governor);
  });
}

TEST_CASE("simulated: a model that is closed refuses its parked callers, and the others get their permits") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto governor = Governor::make("d", kLanes);
    OnDevice on;
    Totals totals;
    run_together(5, [&](int thread) {
      if (thread == 4) {
        yield_point("close");
        governor->refuse_parked(ModelId{2}, Status::unavailable("closed"));
        return;
      }
      for (int i = 0; i < 2; ++i) {
        const auto permit =
            governor->enter(ModelId{static_cast<uint64_t>(1 + thread % 2)}, Deadline::never());
        if (thread % 2 == 0) sim.expect(permit.ok(), "the other model's calls are not refused");
        if (totals.count(sim, permit.status(), Deadline::never(), permit.ok() && *permit, false))
          on.call(sim, permit->lane());
      }
    });
    sim.expect(totals.entered.load_relaxed() + totals.refused.load_relaxed() == 8, "each had one answer");
    check_idle(sim, *governor);
  });
}

TEST_CASE(
    "replayed: governor: calls of two models that take turns on one lane, at most until their deadline") {
  log_for_model("governor", "lanes", 80, [](Simulation& sim) {
    const auto governor = Governor::make("d", 1);
    const bool patient = sim.random(2) == 0;
    run_together(3, [&](int thread) {
      sim.play(thread);
      const Deadline deadline = patient ? Deadline::never() : Deadline::in(microseconds(sim.random(5)));
      const auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + thread % 2)}, deadline);
      sim.expect(permit.ok() || !patient, "a lane at some time");
      yield_point("on the device");
    });
  });
}

TEST_CASE("replayed: governor: a hold collects the lanes, and calls go on when it ends or is late") {
  log_for_model("governor", "hold", 80, [](Simulation& sim) {
    const auto governor = Governor::make("d", kLanes);
    run_together(3, [&](int thread) {
      sim.play(thread);
      const Deadline deadline = some_deadline(sim);
      if (thread == 2) {
        const auto hold = governor->exclusive(deadline);
        return yield_point("hold");
      }
      const auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + thread % 2)}, deadline);
      yield_point("on the device");
    });
  });
}

// As Runtime::enter_on does, with a Turn of the test's: each gives what it has back when it is sent aside.
TEST_CASE("replayed: governor: a call and copies that own a Turn step aside for a hold that wants it, too") {
  log_for_model("governor", "copies", 80, [](Simulation& sim) {
    const auto governor = Governor::make("d", 1);
    Guarded<bool, Rank::kHelpers> turn(false);
    const auto set_turn = [&](bool taken) {
      auto held = turn.lock();
      if (taken) held.wait([&] { return !*held; });
      *held = taken;
      held.notify_all();
    };
    const auto try_turn = [&] { return !std::exchange(*turn.lock(), true); };
    run_together(4, [&](int thread) {
      sim.play(thread);
      const auto enter = [&](DuringHold during) {
        return thread == 0 ? governor->enter(ModelId{1}, Deadline::never(), during)
                           : governor->enter_copy(ModelId{9}, Deadline::never(), during);
      };
      if (thread == 3) {
        const auto hold = governor->exclusive(Deadline::never());
        set_turn(true);
        auto copy = enter(DuringHold::step_aside);
        sim.expect(copy.ok() && *copy, "the holder's copies go on");
        set_turn(false);
        return;
      }
      for (bool owns = true, done = false; !done; owns = !owns) {
        if (owns) set_turn(true);
        const auto permit = enter(owns ? DuringHold::step_aside : DuringHold::wait);
        done = *permit && (owns || try_turn());
        if (owns || done) set_turn(false);
      }
    });
  });
}

}  // namespace heddle::runtime
