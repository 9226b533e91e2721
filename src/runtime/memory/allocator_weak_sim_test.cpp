// An allocator under the orders that allocator.h states.
#include <doctest/doctest.h>

#include <memory>

#include "base/bell.h"
#include "base/schedules_fixture.h"
#include "device/completing_queue_fixture.h"
#include "runtime/memory/allocator.h"
#include "runtime/memory/model_source.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {
namespace {

using heddle::test::at_once;
using heddle::test::explore;

// Requests without callbacks: those with them try once more after the callbacks.
constexpr uint64_t kPart = uint64_t{2} << 20;

Ref<Allocator> allocator_of(uint64_t parts) {
  return *Allocator::make(
      std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = parts * kPart}), {});
}

TEST_CASE("weak orders: memory that another thread has on its way to the driver is room for a request") {
  explore({"allocator_weak", 2, 2, 2, true, 1}, [](Simulation& sim, int threads) {
    const auto allocator = allocator_of(4);
    allocator->allocate(3 * kPart).value().reset();
    at_once(sim, threads, [&](int i) {
      if (i == 0) return allocator->empty_cache();
      const auto got = allocator->allocate(2 * kPart, device::MemoryKind::device, Allocator::Callbacks::no);
      sim.expect(got.ok(), "nothing is in use");
    });
    allocator->empty_cache();
    sim.expect(allocator->stats().reserved == 0, "all went back");
  });
}

TEST_CASE("weak orders: memory that another thread has on its way to the cache is room for a request") {
  explore({"allocator_reaps_weak", 2, 2, 2, true, 1}, [](Simulation& sim, int threads) {
    const auto allocator = allocator_of(4);
    device::CompletingQueue queue;
    auto buffer = allocator->allocate(3 * kPart).value();
    buffer->mark_write(queue.point(1));
    buffer.reset();
    queue.advance(1);
    at_once(sim, threads, [&](int i) {
      if (i == 0) return allocator->reap_pending();
      const auto got = allocator->allocate(2 * kPart, device::MemoryKind::device, Allocator::Callbacks::no);
      sim.expect(got.ok(), "nothing is in use");
    });
    allocator->empty_cache();
    sim.expect(allocator->stats().reserved == 0, "all went back");
  });
}

TEST_CASE("weak orders: a block freed beside the end of its last use goes to the cache at that end") {
  explore({"allocator_bell_weak", 2, 2, 2, true, 1}, [](Simulation& sim, int threads) {
    const auto allocator = allocator_of(1);
    device::CompletingQueue queue;
    queue.timeline()->attach(std::make_shared<Bell>());
    auto buffer = allocator->allocate(kPart).value();
    buffer->mark_write(queue.point(1));
    static_cast<void>(queue.timeline()->ring_at(1));  // as a stream asks at its submission
    at_once(sim, threads, [&](int i) {
      if (i == 0) return buffer.reset();
      queue.advance(1);
      allocator->reap_pending();  // as the thread does that the bell wakes
    });
    sim.expect(allocator->stats().pending == 0, "nobody else comes for it");
  });
}

TEST_CASE("weak orders: who finds that memory was refused finds how much") {
  explore({"model_source_weak", 2, 3, 3, true, 3}, [](Simulation& sim, int threads) {
    ModelSource source(allocator_of(1));
    at_once(sim, threads, [&](int i) {
      if (i == 0) return sim.expect(!source.allocate(2 * kPart, device::MemoryKind::device).ok(), "refused");
      if (source.refusals() != 0) sim.expect(source.last_refused() == 2 * kPart, "that much");
    });
    sim.expect(source.refusals() == 1, "counted");
  });
}

}  // namespace
}  // namespace heddle::runtime
