// Stream pool, governor and allocator under all schedules of two and three threads, up to a number of
// preemptions.
#include <doctest/doctest.h>

#include <memory>

#include "base/bell.h"
#include "base/schedules_fixture.h"
#include "device/completing_queue_fixture.h"
#include "runtime/admission/governor.h"
#include "runtime/memory/allocator.h"
#include "runtime/streams/stream_pool.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;

Ref<StreamPool> pool_of(int places, Exhaustion exhaustion) {
  Options options;
  options.streams = places + 1;  // the default stream is one of them
  options.exhaustion = exhaustion;
  return *StreamPool::make(std::make_shared<Roster>(std::make_shared<test::TestDevice>(), Clock::real()),
                           options);
}

TEST_CASE(
    "schedules: the one place of a pool goes from lessee to lessee, and nobody who waits is forgotten") {
  for (const int count : {2, 3}) {
    explore({"stream_pool_wait", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      const auto pool = pool_of(1, Exhaustion::wait);
      Atomic<int> inside{0}, leased{0};
      at_once(sim, threads, [&](int) {
        const auto lease = pool->lease(Deadline::never());
        sim.expect(lease.ok(), "a lease");
        sim.expect(inside.add_relaxed(1) == 0, "the place is this lessee's alone");
        leased.add_relaxed(1);
        inside.sub_relaxed(1);
      });
      sim.expect(leased.newest() == threads && pool->stats().leased == 0, "each had it, and it is free");
      sim.expect(pool->lease(Deadline::at(TimePoint())).ok(), "for the next one");
    });
  }
}

TEST_CASE("schedules: who seeks a stream to share finds one, and a pool that is closed answers all") {
  for (const int count : {2, 3}) {
    explore({"stream_pool_share", count, 3}, [](Simulation& sim, int threads) {
      const auto pool = pool_of(1, Exhaustion::share);
      Atomic<int> answered{0};
      at_once(sim, threads, [&](int i) {
        if (i == 2) return pool->close();
        const auto lease = pool->lease(Deadline::never());
        sim.expect(lease.ok() || (threads == 3 && lease.status().code() == Code::unavailable),
                   "a lease, or closed");
        answered.add_relaxed(1);
      });
      sim.expect(answered.newest() == 2, "each had one answer");
      sim.expect(pool->stats().leased == 0 && pool->stats().lessees == 0, "every lease is back");
    });
  }
}

TEST_CASE("schedules: calls and an exclusive hold exclude each other, and all get through") {
  for (const int count : {2, 3}) {
    explore({"governor", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      const auto governor = Governor::make("d", 1);
      Atomic<int> inside{0}, through{0};
      at_once(sim, threads, [&](int i) {
        const auto use = [&] {
          sim.expect(inside.add_relaxed(1) == 0, "alone");
          inside.sub_relaxed(1);
          through.add_relaxed(1);
        };
        if (i == 1) {
          const auto hold = governor->exclusive(Deadline::never());
          sim.expect(hold.ok(), "a hold");
          use();
        } else {
          const auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + i)}, Deadline::never());
          sim.expect(permit.ok() && *permit, "a permit");
          use();
        }
      });
      const Governor::Stats stats = governor->stats();
      sim.expect(through.newest() == threads && stats.in_flight == 0 && stats.waiting == 0,
                 "all got through");
      const auto last = governor->enter(ModelId{1}, Deadline::at(TimePoint()));
      sim.expect(last.ok() && *last, "the lane is free");
    });
  }
}

TEST_CASE("schedules: a copy and an exclusive hold exclude each other, and a deadline forgets nothing") {
  for (const int count : {2, 3}) {
    explore({"governor_copies", count, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
      const auto governor = Governor::make("d", 1);
      Atomic<int> copies{0}, holds{0};
      at_once(sim, threads, [&](int i) {
        if (i == 1) {
          const auto hold = governor->exclusive(Deadline::never());
          sim.expect(hold.ok(), "a hold");
          holds.add_relaxed(1);
          sim.expect(copies.load_relaxed() == 0, "no copy during a hold");
          holds.sub_relaxed(1);
        } else if (i == 0) {
          const auto copy = governor->enter_copy(ModelId{9}, Deadline::never());
          sim.expect(copy.ok() && *copy, "a copy");
          copies.add_relaxed(1);
          sim.expect(holds.load_relaxed() == 0, "no hold during a copy");
          copies.sub_relaxed(1);
        } else {
          const auto permit = governor->enter(ModelId{1}, Deadline::in(std::chrono::milliseconds(1)));
          sim.expect(permit.ok() || permit.status().code() == Code::deadline, "a permit, or late");
        }
      });
      const auto last = governor->enter(ModelId{1}, Deadline::at(TimePoint()));
      sim.expect(last.ok() && *last && governor->stats().waiting == 0, "nobody is forgotten");
    });
  }
}

TEST_CASE(
    "schedules: of many threads, drawn: calls, copies and holds exclude each other, and all get through") {
  heddle::test::draw({"governor", 6}, 2000, 3, [](Simulation& sim, int threads) {
    const auto governor = Governor::make("d", 2);
    Atomic<int> calls{0}, copies{0}, holds{0}, through{0};
    at_once(sim, threads, [&](int i) {
      if (i < 3) {
        const auto permit = governor->enter(ModelId{static_cast<uint64_t>(1 + i % 2)}, Deadline::never());
        sim.expect(permit.ok() && *permit, "a permit");
        sim.expect(calls.add_acq_rel(1) < 2 && holds.load_acquire() == 0, "two lanes, and no hold");
        calls.sub_acq_rel(1);
      } else if (i < 5) {
        const auto hold = governor->exclusive(Deadline::never());
        sim.expect(hold.ok() && holds.add_acq_rel(1) == 0, "one hold");
        sim.expect(calls.load_acquire() == 0 && copies.load_acquire() == 0, "it is alone");
        holds.sub_acq_rel(1);
      } else {
        const auto copy = governor->enter_copy(ModelId{9}, Deadline::never());
        sim.expect(copy.ok() && *copy, "a copy");
        copies.add_acq_rel(1);
        sim.expect(holds.load_acquire() == 0, "no copy during a hold");
        copies.sub_acq_rel(1);
      }
      through.add_relaxed(1);
    });
    sim.expect(through.newest() == threads && governor->stats().waiting == 0, "nobody is forgotten");
  });
}

TEST_CASE("schedules: of many threads, drawn: leases of two places all end") {
  for (const Exhaustion exhaustion : {Exhaustion::wait, Exhaustion::share}) {
    heddle::test::draw({"stream_pool", 6}, 1000, 3, [=](Simulation& sim, int threads) {
      const auto pool = pool_of(2, exhaustion);
      Atomic<int> leased{0};
      at_once(sim, threads, [&](int) {
        for (int round = 0; round < 2; ++round) {
          sim.expect(pool->lease(Deadline::never()).ok(), "a lease");
          leased.add_relaxed(1);
        }
      });
      sim.expect(leased.newest() == 2 * threads && pool->stats().leased == 0,
                 "each had it, and all are free");
    });
  }
}

constexpr uint64_t kMebibyte = uint64_t{1} << 20;

TEST_CASE("schedules: memory that another thread has on its way back is room for a request") {
  for (const int count : {2, 3}) {
    explore(
        {"allocator", count, count == 2 ? 2u : 1u, count == 2 ? 3u : 2u}, [](Simulation& sim, int threads) {
          const auto device =
              std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = 8 * kMebibyte});
          const auto allocator = *Allocator::make(device, {});
          allocator->allocate(6 * kMebibyte).value().reset();
          at_once(sim, threads, [&](int i) {
            if (i == 0) return allocator->empty_cache();
            sim.expect(allocator->allocate((i == 1 ? 5 : 2) * kMebibyte).ok(), "what is in use leaves room");
          });
          allocator->empty_cache();
          const Allocator::Stats stats = allocator->stats();
          sim.expect(stats.allocated == 0 && stats.cached == 0 && stats.reserved == 0, "all went back");
          sim.expect(device->counts().memory.newest() == 0, "to the driver");
        });
  }
}

// The device's counts are left out.
struct FreedBlock {
  explicit FreedBlock(Simulation& sim)
      : device(sim.leave_out([] {
          return std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = 8 * kMebibyte});
        })) {
    queue.timeline()->attach(std::make_shared<Bell>());
    buffer = allocator->allocate(6 * kMebibyte).value();
    buffer->mark_write(queue.point(1));
    static_cast<void>(queue.timeline()->ring_at(1));  // as a stream asks at its submission
  }
  void check_all_went_back(Simulation& sim) {
    allocator->empty_cache();
    const Allocator::Stats stats = allocator->stats();
    sim.expect(stats.allocated == 0 && stats.cached == 0 && stats.reserved == 0, "all went back");
    sim.expect(device->counts().memory.newest() == 0, "to the driver");
  }
  const Ref<test::TestDevice> device;
  const Ref<Allocator> allocator = *Allocator::make(device, {});
  device::CompletingQueue queue;
  Ref<device::Buffer> buffer;
};

TEST_CASE("schedules: memory that one thread reaps and another one gives to the driver is room for a third") {
  explore({"allocator_reaps", 3, 1, 3}, [](Simulation& sim, int threads) {
    FreedBlock freed(sim);
    freed.buffer.reset();
    freed.queue.advance(1);
    Ref<device::Buffer> room;
    at_once(sim, threads, [&](int i) {
      if (i == 0) return freed.allocator->reap_pending();
      if (i == 1) return freed.allocator->empty_cache();
      auto got =
          freed.allocator->allocate(5 * kMebibyte, device::MemoryKind::device, Allocator::Callbacks::no);
      sim.expect(got.ok(), "nothing is in use");
      room = std::move(*got);
    });
    room.reset();
    freed.check_all_went_back(sim);
  });
}

TEST_CASE("schedules: a block freed beside the end of its last use is reaped once, by one of three") {
  explore({"allocator_freed", 3, 3}, [](Simulation& sim, int threads) {
    FreedBlock freed(sim);
    at_once(sim, threads, [&](int i) {
      if (i == 0) return freed.buffer.reset();
      if (i == 1) freed.queue.advance(1);
      freed.allocator->reap_pending();
    });
    const Allocator::Stats stats = freed.allocator->stats();
    sim.expect(stats.pending == 0 && stats.cached == 6 * kMebibyte, "nobody else comes for it");
    freed.check_all_went_back(sim);
  });
}

}  // namespace
}  // namespace heddle::runtime
