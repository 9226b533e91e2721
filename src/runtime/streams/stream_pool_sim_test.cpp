// Leases of streams under simulated schedules: a place has its lessees and no others, waiters are handed
// places in turn, seekers find a stream to share.
#include "runtime/streams/stream_pool.h"

#include <doctest/doctest.h>

#include <vector>

#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;
using std::chrono::microseconds;

// Two places to lease, or as many as asked for, the default stream beside them.
Ref<StreamPool> small_pool(Exhaustion exhaustion, bool asynchronous = false, int places = 2) {
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{.asynchronous = asynchronous});
  Options options;
  options.streams = places + 1;
  options.exhaustion = exhaustion;
  return *StreamPool::make(std::make_shared<Roster>(device, Clock::real()), options);
}

struct Lessees {
  Atomic<int> now[3];
  Atomic<int> most{0};
  void use(Simulation& sim, const StreamLease& lease, bool alone) {
    const int place = lease->id().index;
    sim.expect(place == 1 || place == 2, "a place that can be leased");
    const int others = now[place].add_acq_rel(1);
    most.max_relaxed(others + 1);
    if (alone) sim.expect(others == 0, "the place is this lessee's alone");
    yield_point("leased");
    now[place].sub_acq_rel(1);
  }
};

void check_returned(Simulation& sim, const StreamPool& pool) {
  const StreamPool::Stats stats = pool.stats();
  sim.expect(stats.leased == 0 && stats.lessees == 0, "every lease is back");
}

}  // namespace

TEST_CASE("simulated: leases that wait get a place of their own in turn, or are late") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::wait);
    Lessees lessees;
    Atomic<int> leased{0}, late{0};
    run_together(4, [&](int) {
      for (int i = 0; i < 2; ++i) {
        const Deadline deadline =
            sim.random(3) == 0 ? Deadline::in(microseconds(sim.random(20))) : Deadline::never();
        const auto lease = pool->lease(deadline);
        if (lease.ok()) {
          lessees.use(sim, *lease, true);
          leased.add_relaxed(1);
        } else {
          sim.expect(lease.status().code() == Code::deadline && deadline.expired(),
                     "late after its deadline");
          late.add_relaxed(1);
        }
      }
    });
    sim.expect(leased.load_relaxed() + late.load_relaxed() == 8, "each had one answer");
    check_returned(sim, *pool);
    const auto one = pool->lease(Deadline::at(TimePoint())), other = pool->lease(Deadline::at(TimePoint()));
    sim.expect(one.ok() && other.ok(), "both places are free again");
  });
}

TEST_CASE(
    "simulated: leases that share all get a stream, the first lessee makes it, the last one returns it") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::share);
    Lessees lessees;
    run_together(4, [&](int) {
      for (int i = 0; i < 2; ++i) {
        const auto lease = pool->lease();
        sim.expect(lease.ok(), "a stream to share");
        lessees.use(sim, *lease, false);
      }
    });
    check_returned(sim, *pool);
    sim.expect(lessees.most.load_relaxed() <= 4, "no more lessees than threads");
    sim.expect(pool->stats().most_leased <= 2, "no more places than there are");
  });
}

TEST_CASE("simulated: nobody waits for a lease to end while there is a stream to share") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::share);
    Guarded<int, Rank::kHelpers> leased(0);
    run_together(4, [&](int) {
      const auto lease = pool->lease();
      sim.expect(lease.ok(), "a stream to share");
      auto held = leased.lock();
      ++*held;
      held.notify_all();
      held.wait([&] { return *held == 4; });
    });
    check_returned(sim, *pool);
    sim.expect(pool->stats().joined >= 2, "at least two share");
  });
}

TEST_CASE("simulated: a pool that is closed answers all that wait, and leases that are out come back") {
  holds_for_seeds(2000, [](Simulation& sim) {
    const auto pool = small_pool(sim.random(2) == 0 ? Exhaustion::wait : Exhaustion::share);
    Lessees lessees;
    Atomic<int> leased{0}, refused{0};
    run_together(4, [&](int thread) {
      if (thread == 3) {
        yield_point("close");
        pool->close();
        return;
      }
      for (int i = 0; i < 2; ++i) {
        const auto lease = pool->lease(Deadline::never());
        if (lease.ok()) {
          lessees.use(sim, *lease, false);
        } else {
          sim.expect(lease.status().code() == Code::unavailable, "refused because it is closed");
        }
        (lease.ok() ? leased : refused).add_relaxed(1);
      }
    });
    sim.expect(leased.load_relaxed() + refused.load_relaxed() == 6, "each had one answer");
    check_returned(sim, *pool);
  });
}

// Each thread comes back to the place that it had last, so that a look at one place after another may find
// each taken, though one of them was free at any time.
TEST_CASE("simulated: fail refuses nobody while leases and those who ask for one are as few as places") {
  constexpr int kPlaces = 6;
  holds_for_seeds(1000, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::fail, false, kPlaces);
    Atomic<int> inside{0}, leased{0};
    run_together(kPlaces + 3, [&](int) {
      for (int i = 0; i < 8; ++i) {
        if (inside.add_acq_rel(1) < kPlaces) {
          const auto lease = pool->lease();
          sim.expect(lease.ok(), "a place is free");
          leased.add_relaxed(1);
          for (int pause = 0; pause < 3; ++pause) yield_point("leased");
        }
        inside.sub_acq_rel(1);
      }
    });
    sim.expect(leased.load_relaxed() >= kPlaces, "the first ones got their leases");
    check_returned(sim, *pool);
  });
}

TEST_CASE("a warm lease takes no lock and makes at most four read-modify-writes of Atomics") {
  uint64_t read_modify_writes = 0, locks = 0, first = 0;
  const SimulationReport report = simulate(1, [&](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::share);
    const auto cost = [&](auto&& body) {
      const uint64_t before = seam::beat->read_modify_writes, locked = seam::beat->locks;
      body();
      locks = seam::beat->locks - locked;
      return seam::beat->read_modify_writes - before;
    };
    first = cost([&] { sim.expect(pool->lease().ok(), "a stream"); });
    read_modify_writes = cost([&] { sim.expect(pool->lease().ok(), "a stream"); });
  });
  CHECK_MESSAGE(report.ok(), report.failure);
  CHECK(first > read_modify_writes);  // the roster's, and that most are leased
  CHECK(read_modify_writes > 0);
  CHECK(read_modify_writes <= 4);  // and two of the reference to the pool, which no Atomic counts
  CHECK(locks == 0);
}

TEST_CASE("simulated: lessees of one asynchronous stream take turns, and their work is done in order, once") {
  holds_for_seeds(500, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::share, true);
    std::vector<float> cells(3, 0);
    run_together(3, [&](int thread) {
      const auto lease = pool->lease();
      sim.expect(lease.ok(), "a stream");
      Stream& stream = **lease;
      for (int i = 1; i <= 2; ++i) {
        auto* const at = reinterpret_cast<std::byte*>(&cells[static_cast<size_t>(thread)]);
        const device::View cell = device::View::contiguous(at, ir::DType::kF32, {1});
        device::CommandList list;
        list.fill(cell, i);
        auto turn = stream.turn();
        sim.expect(turn.ok(), "a turn");
        sim.expect(turn->submit(std::move(list)).ok(), "submitted");
      }
      sim.expect(stream.synchronize(Deadline::never()).ok(), "its work is over");
      sim.expect(cells[static_cast<size_t>(thread)] == 2, "in order");
    });
    check_returned(sim, *pool);
  });
}

TEST_CASE("replayed: stream_pool: leases that wait, at most until their deadline") {
  log_for_model("stream_pool", "wait", 100, [](Simulation& sim) {
    const auto pool = small_pool(Exhaustion::wait, false, 1);
    run_together(3, [&](int thread) {
      sim.play(thread);
      const bool patient = sim.random(2) == 0;
      for (int i = 0; i < 2; ++i) {
        const auto lease =
            pool->lease(patient ? Deadline::never() : Deadline::in(microseconds(sim.random(8))));
        sim.expect(lease.ok() || !patient, "a place at some time");
        yield_point("leased");
      }
    });
    check_returned(sim, *pool);
  });
}

TEST_CASE("replayed: stream_pool: leases that wait or share, and a pool that is closed beside them") {
  for (const bool waits : {true, false}) {
    log_for_model("stream_pool", waits ? "wait_closes" : "share_closes", 60, [&](Simulation& sim) {
      const auto pool = small_pool(waits ? Exhaustion::wait : Exhaustion::share, false, waits ? 1 : 2);
      run_together(4, [&](int thread) {
        sim.play(thread);
        if (thread == 3) {
          for (uint64_t pause = sim.random(20); pause > 0; --pause) yield_point("close");
          return pool->close();
        }
        for (int i = 0; i < (waits ? 1 : 2); ++i) {
          const auto lease = pool->lease();
          yield_point("leased");
        }
      });
      check_returned(sim, *pool);
    });
  }
}

}  // namespace heddle::runtime
