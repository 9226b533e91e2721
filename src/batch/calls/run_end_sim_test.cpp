// The end of a batch's run under simulated schedules: who publishes it while its leader has no turn or has
// left, and what becomes of the batch when the device is lost or nobody is left.
#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <stop_token>

#include "base/looking.h"
#include "base/simulation_fixture.h"
#include "base/yield.h"
#include "batch/calls/coalescer_fixture.h"

namespace heddle::batch {

namespace {

using heddle::test::holds_for_seeds;
using std::chrono::microseconds;
using std::chrono::milliseconds;

constexpr int kLookers = 8, kLookerRounds = 4, kFull = kLookers / 2;
constexpr int kNoLooker = -1;
thread_local int looker = kNoLooker;  // of the calling thread

// Calls of many callers that look. The third full batch is held by its kernel, in most seeds while its end is
// shown.
struct ShownRun {
  using Hold = std::function<Status(ShownRun&)>;
  using Look = std::function<void(ShownRun&)>;
  // hold: what the kernel of that batch does. look: what each thread does that looks for an end.
  ShownRun(Simulation& simulation, Hold hold, Look look)
      : sim(simulation),
        fixture(options(), false, false,
                {.asynchronous = true, .look = [this, look] {
                   if (looker != kNoLooker && looker != held_leader.load_acquire() && is_held.load_acquire())
                     is_seen.store_release(true);
                   if (look) look(*this);
                 }}) {
    fixture.device->set_submit([this] {
      leader.store_release(looker);
      return Status();
    });
    fixture.kernel = [this, hold = std::move(hold)](const device::Run& run) {
      const int64_t rows = run.inputs[0].extents[0];
      const bool holds = rows == kFull && full.add_acq_rel(1) >= 2 && may_hold(leader.load_acquire()) &&
                         !was_held.exchange_acq_rel(true);
      for (int64_t i = 0; i < rows; ++i) {
        Seen& row = of(Fixture::at(run.inputs[0], i, 0));
        row.runs.add_relaxed(1);
        row.is_held.store_relaxed(holds);
      }
      if (!holds) return Status();
      held_leader.store_relaxed(leader.load_acquire());
      is_held.store_release(true);
      const Status status = hold(*this);
      is_held.store_release(false);
      return status;
    };
  }
  static CoalescerOptions options() {
    CoalescerOptions options = with(1, kFull);
    options.door = false;
    options.look_on = 1;
    return options;
  }

  struct Seen {  // of one call's row
    Atomic<int> runs{0};
    Atomic<bool> is_held{false};
  };
  Seen& of(float value) { return rows[static_cast<size_t>(value)]; }

  // Each call, and whether its row was in the batch that was held.
  using Call = std::function<void(int caller, Rows& rows, Seen& row)>;
  void call_all(const Call& call) {
    run_together(kLookers, [&](int caller) {
      looker = caller;
      for (int round = 0; round < kLookerRounds; ++round) {
        Rows x(1, static_cast<float>(kLookerRounds * 4 * caller + 4 * round));
        call(caller, x, of(x.values[0]));
      }
      looker = kNoLooker;
    });
    sim.expect(fixture.coalescer->stats().parked == 0, "nobody waits");
    for (const Seen& row : rows) sim.expect(row.runs.load_relaxed() <= 1, "no row is computed again");
  }

  Simulation& sim;
  std::function<bool(int leader)> may_hold = [](int) { return true; };
  Atomic<int> leader{kNoLooker}, held_leader{kNoLooker}, full{0};
  Atomic<bool> is_held{false}, was_held{false};
  Atomic<bool> is_seen{false};  // one that does not lead looked for its end, which was shown therefore
  std::array<Seen, static_cast<size_t>(kLookers * kLookerRounds * 4)> rows;
  Fixture fixture;
};

// The leader of the batch that is held has no turn for a long while, once it looks for the end of its run.
struct LeaderAway {
  static constexpr auto kAway = milliseconds(100);
  // ends_with: how that run ends.
  LeaderAway(Simulation& sim, const std::function<Status(Fixture&)>& ends_with)
      : shown(
            sim,
            [this, ends_with](ShownRun& run) {
              while (!is_away.load_acquire()) give_way();
              return ends_with(run.fixture);
            },
            [this, &sim](ShownRun& run) {
              if (!run.is_held.load_acquire() || looker != run.held_leader.load_relaxed()) return;
              if (!is_away.exchange_acq_rel(true)) sim.pause(kAway);
            }) {}
  // How many calls end no sooner than that leader is back.
  int late(const ShownRun::Call& call) {
    Atomic<int> late{0};
    shown.call_all([&](int caller, Rows& rows, ShownRun::Seen& row) {
      const TimePoint begin = Clock::real().now();
      call(caller, rows, row);
      late.add_relaxed(Clock::real().now() - begin >= kAway ? 1 : 0);
    });
    shown.sim.expect(is_away.load_relaxed() && late.load_relaxed() > 0, "it was away");
    return late.load_relaxed();
  }

  Atomic<bool> is_away{false};
  ShownRun shown;
};

// In few seeds all others have looked for so long by then that they sleep, and wait for the leader.
struct Helped {
  int ran = 0, helped = 0;
  void count(int late) {
    ++ran;
    helped += late == 1 ? 1 : 0;
  }
  bool mostly() const { return ran < 20 || helped > ran * 3 / 4; }
};

}  // namespace

TEST_CASE("simulated: the end of a run is published by a caller that sees it, while its leader has no turn") {
  Helped sum;
  holds_for_seeds(100, [&](Simulation& sim) {
    LeaderAway away(sim, [](Fixture&) { return Status(); });
    Atomic<int> right{0};
    sum.count(away.late([&](int, Rows& rows, ShownRun::Seen&) {
      Fixture& fixture = away.shown.fixture;
      right.add_relaxed(fixture.right(rows, fixture.call(rows)) ? 1 : 0);
    }));
    sim.expect(right.load_relaxed() == kLookers * kLookerRounds, "its own row");
  });
  CAPTURE(sum.helped);
  CHECK(sum.mostly());
}

// They do not look for the answer, which they are told at their pace.
TEST_CASE("simulated: the end of a run is published by a paced caller that sees it, as by any other") {
  Helped sum;
  holds_for_seeds(100, [&](Simulation& sim) {
    Pace pace(kLookers, Duration(0));
    LeaderAway away(sim, [](Fixture&) { return Status(); });
    Atomic<int> right{0};
    sum.count(away.late([&](int, Rows& rows, ShownRun::Seen&) {
      Fixture& fixture = away.shown.fixture;
      Pace::Scope scope(pace);
      right.add_relaxed(fixture.right(rows, fixture.call(rows)) ? 1 : 0);
      scope.passed();
    }));
    sim.expect(right.load_relaxed() == kLookers * kLookerRounds, "its own row");
    sim.expect(pace.waiting() == 0 && pace.on_the_way() == 0, "nobody waits to be told or is on the way");
  });
  CAPTURE(sum.helped);
  CHECK(sum.mostly());
}

TEST_CASE(
    "simulated: when the device is lost while an end is shown, each member is told by any that sees it") {
  Helped sum;
  holds_for_seeds(100, [&](Simulation& sim) {
    LeaderAway away(sim, [](Fixture& fixture) {
      fixture.device->lose();
      return Status::device_lost("pulled");
    });
    Atomic<int> right{0}, lost{0}, of_the_run{0};
    sum.count(away.late([&](int, Rows& rows, ShownRun::Seen& row) {
      Fixture& fixture = away.shown.fixture;
      const auto result = fixture.call(rows);
      const bool is_lost = result.status().code() == Code::device_lost;
      sim.expect(is_lost || fixture.right(rows, result), "its own row, or device_lost");
      (is_lost ? lost : right).add_relaxed(1);
      of_the_run.add_relaxed(is_lost && row.is_held.load_relaxed() ? 1 : 0);
    }));
    sim.expect(right.load_relaxed() + lost.load_relaxed() == kLookers * kLookerRounds, "each had one answer");
    sim.expect(of_the_run.load_relaxed() == kFull, "each member of the run that was lost");
  });
  CAPTURE(sum.helped);
  CHECK(sum.mostly());
}

// A leader that is cancelled stays: it leaves at its deadline only. Once another one has claimed the end it
// may leave as any member does.
TEST_CASE("simulated: a leader that leaves while the end of its run is shown leaves that to another member") {
  constexpr int kHurried = 4;
  constexpr auto kDeadline = milliseconds(2), kLong = milliseconds(30);
  int held = 0, left = 0, cancelled = 0;
  holds_for_seeds(150, [&](Simulation& sim) {
    std::array<std::stop_source, kHurried> stops;
    ShownRun shown(
        sim,
        [&](ShownRun& run) {
          const auto leader = static_cast<size_t>(run.held_leader.load_relaxed());
          stops[leader].request_stop();
          sim.pause(kLong);
          return Status();
        },
        nullptr);
    shown.may_hold = [&](int leader) { return leader >= 0 && leader < kHurried; };
    Atomic<int> right{0}, late{0}, stopped{0};
    Atomic<bool> leader_left{false}, leader_stopped{false};
    shown.call_all([&](int caller, Rows& rows, ShownRun::Seen& row) {
      const bool hurries = caller < kHurried, by_deadline = caller % 2 == 0;
      const Deadline deadline = hurries && by_deadline ? Deadline::in(kDeadline) : Deadline::never();
      const std::stop_token stop =
          hurries && !by_deadline ? stops[static_cast<size_t>(caller)].get_token() : std::stop_token();
      const auto result = shown.fixture.call(rows, deadline, stop);
      const bool leads = row.is_held.load_relaxed() && shown.held_leader.load_relaxed() == caller;
      if (result.status().code() == Code::deadline) {
        sim.expect(deadline.expired(), "late only after the deadline");
        late.add_relaxed(1);
        if (leads) leader_left.store_relaxed(true);
      } else if (result.status().code() == Code::cancelled) {
        sim.expect(stop.stop_requested(), "cancelled only where it was");
        stopped.add_relaxed(1);
      } else {
        sim.expect(shown.fixture.right(rows, result), "its own row");
        sim.expect(row.runs.load_relaxed() == 1, "of a run");
        right.add_relaxed(1);
      }
      if (leads && stop.stop_requested()) leader_stopped.store_relaxed(true);
    });
    sim.expect(
        right.load_relaxed() + late.load_relaxed() + stopped.load_relaxed() == kLookers * kLookerRounds,
        "each had one answer");
    held += shown.was_held.load_relaxed() ? 1 : 0;
    left += shown.is_seen.load_relaxed() && leader_left.load_relaxed() ? 1 : 0;
    cancelled += shown.is_seen.load_relaxed() && leader_stopped.load_relaxed() ? 1 : 0;
  });
  CAPTURE(left);
  CAPTURE(cancelled);
  CHECK((held < 20 || (left > held / 4 && cancelled > held / 4)));
}

// The half of the threads that do not look wait at once where they lead, while the others look.
TEST_CASE("simulated: a leader that lacks memory to wait answers for its batch, unless another one does") {
  int answered = 0, helped = 0;
  holds_for_seeds(300, [&](Simulation& sim) {
    Atomic<bool> has_thrown{false};
    ShownRun shown(
        sim, [&](ShownRun&) { return sim.pause(std::chrono::microseconds(sim.random(200))), Status(); },
        [&](ShownRun& run) {
          const bool waits = run.is_held.load_acquire() && looker == run.held_leader.load_relaxed();
          if (waits && !has_thrown.exchange_acq_rel(true)) throw std::bad_alloc();
        });
    Atomic<int> lacked{0}, right_of_the_run{0};
    shown.call_all([&](int caller, Rows& rows, ShownRun::Seen& row) {
      if (caller % 2 == 0) Looker::of_this_thread().long_turn(Clock::real().now());
      const auto result = shown.fixture.call(rows);
      const bool is_held = row.is_held.load_relaxed();
      const bool lacks = result.status().code() == Code::exhausted;
      sim.expect(lacks ? is_held : shown.fixture.right(rows, result), "its own row, or no memory for it");
      lacked.add_relaxed(lacks ? 1 : 0);
      right_of_the_run.add_relaxed(is_held && !lacks ? 1 : 0);
    });
    const int all = lacked.load_relaxed() + right_of_the_run.load_relaxed();
    sim.expect(all == 0 || lacked.load_relaxed() % all == 0, "all members have one answer");
    answered += lacked.load_relaxed() > 0 ? 1 : 0;
    helped += right_of_the_run.load_relaxed() > 0 ? 1 : 0;
  });
  if (heddle::test::number_in("HEDDLE_SIM_SEED")) return;
  CHECK(answered > 20);
  CHECK(helped > 20);
}

TEST_CASE("simulated: a run whose end is shown gives memory and lane back when all its members have left") {
  constexpr auto kDeadline = milliseconds(2), kLong = milliseconds(60);
  int ran = 0, abandoned = 0;
  holds_for_seeds(100, [&](Simulation& sim) {
    ShownRun shown(sim, [&](ShownRun&) { return sim.pause(kLong), Status(); }, nullptr);
    Fixture& fixture = shown.fixture;
    Atomic<int> right{0}, late{0}, of_the_run{0};
    shown.call_all([&](int, Rows& rows, ShownRun::Seen& row) {
      const Deadline deadline = Deadline::in(kDeadline);
      const auto result = fixture.call(rows, deadline);
      const bool is_late = result.status().code() == Code::deadline && deadline.expired();
      sim.expect(is_late || fixture.right(rows, result), "its own row, or late");
      (is_late ? late : right).add_relaxed(1);
      of_the_run.add_relaxed(is_late && row.is_held.load_relaxed() ? 1 : 0);
    });
    sim.expect(right.load_relaxed() + late.load_relaxed() == kLookers * kLookerRounds, "each had one answer");
    sim.pause(2 * kLong);
    sim.expect(fixture.runtime->governor().stats().in_flight == 0, "the lane is back");
    fixture.coalescer->give_up_idle();
    fixture.runtime->allocator().empty_cache();
    sim.expect(fixture.runtime->stats().slot_bytes == 0, "and the memory");
    ++ran;
    abandoned += shown.is_seen.load_relaxed() && of_the_run.load_relaxed() == kFull ? 1 : 0;
  });
  CAPTURE(abandoned);
  CHECK((ran < 20 || abandoned > ran * 3 / 4));
}

}  // namespace heddle::batch
