// The allocator under simulated schedules: a request is refused only when what is in use leaves no room.
#include "runtime/memory/allocator.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <vector>

#include "base/bell.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "device/completing_queue_fixture.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using heddle::test::holds_for_seeds;

constexpr uint64_t kMiB = uint64_t{1} << 20;

struct SmallMemory {
  SmallMemory() : device(std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = 8 * kMiB})) {
    allocator = *Allocator::make(device, {});
  }
  Ref<test::TestDevice> device;
  Ref<Allocator> allocator;
};

void check_nothing_used(Simulation& sim, SmallMemory& memory) {
  memory.allocator->empty_cache();
  const Allocator::Stats stats = memory.allocator->stats();
  sim.expect(stats.allocated == 0 && stats.cached == 0 && stats.pending == 0, "nothing is used or kept");
  sim.expect(stats.reserved == 0 && memory.device->counts().memory.load_acquire() == 0, "all went back");
}

}  // namespace

TEST_CASE(
    "simulated: a request that the blocks in use leave room for is served, whoever frees what meanwhile") {
  holds_for_seeds(300, [](Simulation& sim) {
    SmallMemory memory;
    run_together(3, [&](int) {
      for (int i = 0; i < 4; ++i) {
        // Three of them at once are within the limit, in whatever classes the cached blocks are.
        const uint64_t bytes = (1 + sim.random(10)) * kMiB / 4;
        auto buffer = memory.allocator->allocate(bytes);
        sim.expect(buffer.ok(), "there was room");
        sim.expect(memory.allocator->stats().reserved <= 8 * kMiB, "within the limit");
        yield_point("in use");
        buffer->reset();
        if (sim.random(6) == 0) memory.allocator->empty_cache();
      }
    });
    check_nothing_used(sim, memory);
  });
}

// One use may end with a ring, and the other one after the reaper's look and before the bell was asked to
// ring for it: the thread that frees looks itself.
TEST_CASE("simulated: a freed block comes back after its last use, whichever stream that was on") {
  holds_for_seeds(1000, [](Simulation& sim) {
    SmallMemory memory;
    const auto bell = std::make_shared<Bell>();
    std::array<device::CompletingQueue, 2> queues;
    for (device::CompletingQueue& queue : queues) queue.timeline()->attach(bell);
    auto buffer = memory.allocator->allocate(kMiB);
    sim.expect(buffer.ok(), "there was room");
    for (const device::CompletingQueue& queue : queues) (*buffer)->mark_read(queue.point(1));
    Atomic<bool> stops{false};
    Atomic<uint64_t> sweeps{0};  // which ring the last one came after, and one
    Thread reaper("reaper", [&] {
      for (;;) {
        const uint64_t seen = bell->rings();
        memory.allocator->reap_pending();
        sweeps.store_release(seen + 1);
        if (stops.load_acquire()) return;
        bell->wait(seen);
      }
    });
    run_together(3, [&](int thread) {
      if (thread == 2) return buffer->reset();
      queues[static_cast<size_t>(thread)].advance(1);
    });
    while (sweeps.load_acquire() != bell->rings() + 1) sim.pause(std::chrono::microseconds(10));
    sim.expect(memory.allocator->stats().pending == 0, "nothing waits for what is over");
    stops.store_release(true);
    bell->ring();
    reaper.join();
    check_nothing_used(sim, memory);
  });
}

TEST_CASE("simulated: memory that is on its way back to the driver is waited for") {
  holds_for_seeds(1000, [](Simulation& sim) {
    SmallMemory memory;
    memory.allocator->allocate(6 * kMiB).value().reset();
    test::Latch slow;  // the driver takes its time
    memory.device->counts().frees.store_release(&slow);
    run_together(3, [&](int thread) {
      if (thread == 0) return memory.allocator->empty_cache();
      if (thread == 1) {
        sim.pause(std::chrono::microseconds(sim.random(1000)));
        return slow.open();
      }
      sim.expect(memory.allocator->allocate(5 * kMiB).ok(), "nothing is in use");
    });
    check_nothing_used(sim, memory);
  });
}

TEST_CASE("simulated: blocks of all sizes come back, and none is given to two at once") {
  holds_for_seeds(300, [](Simulation& sim) {
    SmallMemory memory;
    run_together(3, [&](int thread) {
      std::vector<Ref<device::Buffer>> mine;
      for (int i = 0; i < 6; ++i) {
        const uint64_t bytes = sim.random(2) == 0 ? 64 + sim.random(1000) : kMiB + sim.random(kMiB / 2);
        auto buffer = memory.allocator->allocate(bytes);
        sim.expect(buffer.ok() || buffer.status().code() == Code::exhausted, "served, or no room");
        if (!buffer.ok()) continue;
        *(*buffer)->host() = static_cast<std::byte>(thread);
        mine.push_back(std::move(*buffer));
        yield_point("in use");
        for (const auto& each : mine)
          sim.expect(*each->host() == static_cast<std::byte>(thread), "mine alone");
        if (mine.size() > 2) mine.erase(mine.begin());
      }
    });
    check_nothing_used(sim, memory);
  });
}

}  // namespace heddle::runtime
