// A stream pool under the orders that stream_pool.h states.
#include <doctest/doctest.h>

#include <memory>
#include <optional>

#include "base/schedules_fixture.h"
#include "base/watched_fixture.h"
#include "device/completing_queue_fixture.h"
#include "runtime/streams/stream_pool.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;
using heddle::test::Watched;

// A device that is its queues: the test fails the newest one.
struct QueuesAlone final : device::Device {
  const device::Traits& traits() const override { return own; }
  Result<std::unique_ptr<device::Memory>> allocate(uint64_t, device::MemoryKind, NoLocksHeld) override {
    return Status::exhausted("none");
  }
  Result<std::unique_ptr<device::Queue>> make_queue(NoLocksHeld) override {
    auto queue = std::make_unique<device::CompletingQueue>();
    newest = queue.get();
    return std::unique_ptr<device::Queue>(std::move(queue));
  }
  Result<Ref<const device::Module>> make_module(plan::Prepared, const device::LoadOptions&,
                                                Ref<device::Source>, NoLocksHeld) override {
    return Status::unsupported("none");
  }
  device::Traits own;
  device::CompletingQueue* newest = nullptr;
};

struct OnePlace {
  OnePlace() {
    Options options;
    options.streams = 2;  // the default stream is one of them
    options.exhaustion = Exhaustion::share;
    pool = *StreamPool::make(std::make_shared<Roster>(device, Clock::real()), options);
  }
  const std::shared_ptr<QueuesAlone> device = std::make_shared<QueuesAlone>();
  Ref<StreamPool> pool;
};

TEST_CASE("weak orders: who joins sees what the taker did before, and the next taker what all lessees did") {
  explore({"stream_pool_weak", 2, 2, 3, true, 1}, [](Simulation& sim, int threads) {
    const OnePlace one;
    one.pool->lease().value();  // its stream is made
    Watched<int> before(0), used(0);
    Atomic<bool> left{false};  // relaxed: it orders nothing
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        before.set(1);
        one.pool->try_lease().value().reset();
        const bool is_left = left.load_relaxed();
        const auto again = one.pool->try_lease().value();
        if (again && is_left) sim.expect(used.get() == 1, "the last lessee sees what the other did");
        return;
      }
      {
        const auto lease = one.pool->lease();
        sim.expect(lease.ok(), "a lease");
        if (one.pool->stats().joined == 1) sim.expect(before.get() == 1, "who took it did this before");
        used.set(1);
      }
      left.store_relaxed(true);
    });
    sim.expect(one.pool->stats().lessees == 0, "all are back");
  });
}

TEST_CASE("weak orders: who joins a place that was taken anew meanwhile finds its new stream made") {
  explore({"stream_pool_renewed", 2, 2, 3, true, 1}, [](Simulation& sim, int threads) {
    const OnePlace one;
    std::optional<StreamLease> first = one.pool->try_lease().value();
    one.device->newest->fail(Status::device_lost("gone"));  // replaced with its last lease
    at_once(sim, threads, [&](int i) {
      if (i == 0) {
        first.reset();
        static_cast<void>(one.pool->try_lease().value());
        return;
      }
      const auto lease = one.pool->lease();
      sim.expect(lease.ok() && (*lease)->last_submitted() == 0, "a stream");
    });
    sim.expect(one.pool->stats().lessees == 0 && one.pool->stats().discarded == 1, "the failed one is gone");
  });
}

TEST_CASE("weak orders: who seeks a stream beside its maker and the end of the pool is answered") {
  explore({"stream_pool_close_weak", 3, 1, 2, true, 1}, [](Simulation& sim, int threads) {
    const OnePlace one;
    at_once(sim, threads, [&](int i) {
      if (i == 2) return one.pool->close();
      const auto lease = one.pool->lease();
      sim.expect(lease.ok() || lease.status().code() == Code::unavailable, "a lease, or closed");
    });
    sim.expect(one.pool->stats().lessees == 0, "all are back");
    sim.expect(one.pool->lease().status().code() == Code::unavailable, "closed");
  });
}

}  // namespace
}  // namespace heddle::runtime
