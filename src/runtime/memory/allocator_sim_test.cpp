// The allocator under simulated schedules: a request is refused only when what is in use leaves no room.
#include "runtime/memory/allocator.h"

#include <doctest/doctest.h>

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "base/bell.h"
#include "base/replay_fixture.h"
#include "base/simulation_fixture.h"
#include "base/thread.h"
#include "device/completing_queue_fixture.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using heddle::test::holds_for_seeds;
using heddle::test::log_for_model;

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

// One thread's callback takes all that can be freed, and drops it in its own time. Those of the others find
// nothing more.
TEST_CASE("simulated: a request is served by what another thread's pressure callback is about to drop") {
  holds_for_seeds(1000, [](Simulation& sim) {
    SmallMemory memory;
    Guarded<Ref<device::Buffer>, Rank::kPool> idle;
    *idle.lock() = *memory.allocator->allocate(6 * kMiB);
    memory.allocator->on_pressure([&](uint64_t) {
      Ref<device::Buffer> dropped = std::exchange(*idle.lock(), nullptr);
      yield_point("dropping");
      dropped.reset();
      memory.allocator->empty_cache();
    });
    run_together(3, [&](int) {
      auto buffer = memory.allocator->allocate(5 * kMiB / 2);  // three of them are within the limit
      sim.expect(buffer.ok(), "there was room");
      yield_point("in use");
    });
    sim.expect(memory.allocator->stats().failures == 0, "nobody was refused");
    check_nothing_used(sim, memory);
  });
}

// By a lock of the application's, say, or the end of a model's calls.
TEST_CASE("simulated: a pressure callback that waits for a thread which waits for it costs a delay") {
  holds_for_seeds(100, [](Simulation& sim) {
    SmallMemory memory;
    const Ref<device::Buffer> held = *memory.allocator->allocate(6 * kMiB);
    test::Latch first_inside, second_refused;
    memory.allocator->on_pressure([&](uint64_t bytes) {
      if (bytes != 3 * kMiB) return;
      first_inside.open();
      second_refused.wait();
    });
    run_together(2, [&](int thread) {
      if (thread == 0) {
        sim.expect(!memory.allocator->allocate(3 * kMiB).ok(), "there is no room");
        return;
      }
      first_inside.wait();
      sim.expect(!memory.allocator->allocate(4 * kMiB).ok(), "there is no room");
      second_refused.open();
    });
  });
}

// What others need for a moment is no reason to ask again for what would not fit without them.
TEST_CASE("simulated: a request that could not have been served asks the callbacks once") {
  holds_for_seeds(300, [](Simulation& sim) {
    SmallMemory memory;
    const Ref<device::Buffer> held = *memory.allocator->allocate(6 * kMiB);
    Atomic<int> calls{0};
    memory.allocator->on_pressure([&](uint64_t bytes) {
      if (bytes == 3 * kMiB) calls.add_relaxed(1);
    });
    run_together(2, [&](int thread) {
      if (thread == 0) {
        sim.expect(!memory.allocator->allocate(3 * kMiB).ok(), "there is no room");
        return;
      }
      for (int i = 0; i < 4; ++i) static_cast<void>(memory.allocator->allocate(kMiB / 8).ok());
    });
    sim.expect(calls.load_relaxed() == 1, "it was asked once");
  });
}

TEST_CASE("simulated: a request is served by what callbacks free, though other threads take it first") {
  holds_for_seeds(300, [](Simulation& sim) {
    SmallMemory memory;
    Guarded<std::vector<Ref<device::Buffer>>, Rank::kPool> results;  // until a callback drops them
    memory.allocator->on_pressure([&](uint64_t) {
      std::vector<Ref<device::Buffer>> dropped;
      dropped.swap(*results.lock());
      dropped.clear();
      memory.allocator->empty_cache();
    });
    run_together(4, [&](int thread) {
      for (int i = 0; i < 16; ++i) {  // what the four have in use at once is at most half of the limit
        const uint64_t bytes = static_cast<uint64_t>(64 + thread * 16 + i) * 4096;
        auto x = memory.allocator->allocate(bytes);
        auto y = memory.allocator->allocate(bytes);
        sim.expect(x.ok() && y.ok(), "there was room");
        yield_point("in use");
        results.lock()->push_back(std::move(*y));
      }
    });
    results.lock()->clear();
    sim.expect(memory.allocator->stats().failures == 0, "nobody was refused");
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

namespace {

// The bound of a model's line "Replay", and the steps of its processes.
struct AsInModel {
  int users, streams, limit, rounds, emptiers;

  void run(Simulation& sim) const {
    // `limit` blocks of any class fit, and no more; none serves a request of the other class.
    const std::array<uint64_t, 2> sizes =
        limit == 1 ? std::array{5 * kMiB, 6 * kMiB} : std::array{3 * kMiB, 7 * kMiB / 2};
    const Ref<Allocator> allocator =
        *Allocator::make(std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = 8 * kMiB}),
                         {.high_watermark = 1, .low_watermark = 0});
    const auto bell = std::make_shared<Bell>();
    std::array<device::CompletingQueue, 2> queues;
    for (device::CompletingQueue& queue : queues) queue.timeline()->attach(bell);
    std::array<Atomic<uint64_t>, 2> last;  // submitted to each
    Atomic<int> over{0};
    Atomic<bool> stops{false};
    Atomic<uint64_t> sweeps{0};  // which ring the last one came after, and one
    Thread reaper("reaper", [&] {
      sim.play(users + 1);
      for (uint64_t seen = bell->rings(); !stops.load_acquire(); seen = bell->rings()) {
        allocator->reap_pending();
        sweeps.store_release(seen + 1);
        bell->wait(seen);
      }
    });
    const auto use = [&](int user) {
      for (int round = 0; round < rounds; ++round) {
        const uint64_t bytes = sizes[static_cast<size_t>(user + round) % 2];
        auto buffer = allocator->allocate(bytes, device::MemoryKind::device, Allocator::Callbacks::no);
        seam::did("test.allocate", buffer.ok());
        if (!buffer.ok()) continue;
        for (int stream = 0; stream < streams; ++stream) {
          if (sim.random(3) == 0) continue;
          const auto on = static_cast<size_t>(stream);
          const uint64_t value = last[on].add_acq_rel(1) + 1;
          seam::did("test.submit", stream);
          (*buffer)->mark_read(queues[on].point(value));
        }
        yield_point("in use");
        buffer->reset();
      }
    };
    run_together(users + emptiers + streams, [&](int thread) {
      if (thread < users) {
        sim.play(thread);
        use(thread);
        over.add_acq_rel(1);
      } else if (thread < users + emptiers) {
        sim.play(users);
        for (int times = 0; times < 2; ++times) allocator->empty_cache();
      } else {
        const int stream = thread - users - emptiers;
        sim.play(users + 2 + stream);
        device::CompletingQueue& queue = queues[static_cast<size_t>(stream)];
        for (bool ends = false; !ends;) {
          ends = over.load_acquire() == users;
          const uint64_t reached = queue.timeline()->reached();
          if (reached == last[static_cast<size_t>(stream)].load_acquire()) {
            give_way();
          } else {
            queue.advance(reached + 1);
            ends = false;
          }
        }
      }
    });
    while (sweeps.load_acquire() != bell->rings() + 1) sim.pause(std::chrono::microseconds(10));
    stops.store_release(true);
    bell->ring();
    reaper.join();
    allocator->empty_cache();
    sim.expect(allocator->stats().reserved == 0, "all went back");
  }
};

}  // namespace

TEST_CASE("replayed: allocator: blocks of two users that one stream works with, while the cache is emptied") {
  log_for_model("allocator", "reuse", 60, [](Simulation& sim) {
    AsInModel{.users = 2, .streams = 1, .limit = 1, .rounds = 2, .emptiers = 1}.run(sim);
  });
}

TEST_CASE("replayed: allocator: blocks that two streams work with, or one, or none") {
  log_for_model("allocator", "streams", 60, [](Simulation& sim) {
    AsInModel{.users = 1, .streams = 2, .limit = 1, .rounds = 2, .emptiers = 0}.run(sim);
  });
}

TEST_CASE("replayed: allocator: two look for room for two, while the cache is emptied") {
  log_for_model("allocator", "room", 60, [](Simulation& sim) {
    AsInModel{.users = 2, .streams = 0, .limit = 2, .rounds = 2, .emptiers = 1}.run(sim);
  });
}

}  // namespace heddle::runtime
