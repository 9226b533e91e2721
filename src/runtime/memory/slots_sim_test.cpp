// Slots that no run uses, under all schedules: a request finds their memory, whoever gives it up meanwhile.
#include "runtime/memory/slots.h"

#include <doctest/doctest.h>

#include <memory>

#include "base/schedules_fixture.h"
#include "runtime/admission/governor.h"
#include "runtime/lane.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

using heddle::test::at_once;
using heddle::test::explore;

constexpr uint64_t kIdleUnit = uint64_t{1} << 20;

// All but 2 MiB of the memory is in a slot that no run uses.
struct IdleMemory {
  IdleMemory() {
    slots = std::make_shared<Slots>(allocator, true, 2);
    lanes = std::make_shared<Lanes>(std::make_shared<Roster>(device, Clock::real()), governor);
    allocator->hoard([this] {
      Allocator::LetGo asked = slots->drop_idle();
      lanes->drop_idle_slots();
      return asked;
    });
  }
  ~IdleMemory() {
    allocator->hoard([] { return Allocator::LetGo(); });
  }
  IdleMemory(const IdleMemory&) = delete;
  IdleMemory& operator=(const IdleMemory&) = delete;

  Status fill_a_slot() { return slots->take()->reserve_arena(6 * kIdleUnit); }
  Status fill_a_lane() {
    HEDDLE_TRY_ASSIGN(const Permit permit, governor->enter(ModelId{1}, Deadline::never()));
    HEDDLE_TRY_ASSIGN(Lane* const lane, lanes->at(permit, false));
    lane->slot = slots->make();
    return lane->slot->reserve_arena(6 * kIdleUnit);
  }
  bool has_room() {
    return allocator->allocate(5 * kIdleUnit, device::MemoryKind::device, Allocator::Callbacks::no).ok();
  }

  const Ref<test::TestDevice> device =
      std::make_shared<test::TestDevice>(test::TestOptions{.memory_bytes = 8 * kIdleUnit});
  const Ref<Allocator> allocator = *Allocator::make(device, {});
  const Ref<Governor> governor = Governor::make("d", 1);
  Ref<Slots> slots;
  Ref<Lanes> lanes;
};

}  // namespace

TEST_CASE("schedules: memory of an idle slot that another thread gives up is room for a request") {
  for (const int count : {2, 3}) {
    explore({"idle_slots", count, 1, 2}, [](Simulation& sim, int threads) {
      IdleMemory memory;
      sim.expect(memory.fill_a_slot().ok(), "there was room");
      at_once(sim, threads, [&](int i) {
        if (i != 1) return memory.allocator->empty_cache();
        sim.expect(memory.has_room(), "nothing is in use");
      });
    });
  }
}

TEST_CASE("schedules: memory of a free lane that another thread visits is room for a request") {
  explore({"idle_lanes", 2, 1, 2}, [](Simulation& sim, int threads) {
    IdleMemory memory;
    sim.expect(memory.fill_a_lane().ok(), "there was room");
    at_once(sim, threads, [&](int i) {
      if (i == 0) return memory.allocator->empty_cache();
      sim.expect(memory.has_room(), "nothing is in use");
    });
  });
}

TEST_CASE("schedules: memory of a free lane whose programs another thread drops is room for a request") {
  explore({"idle_lanes_programs", 2, 2}, [](Simulation& sim, int threads) {
    IdleMemory memory;
    sim.expect(memory.fill_a_lane().ok(), "there was room");
    at_once(sim, threads, [&](int i) {
      if (i == 0) return memory.lanes->drop_programs();
      sim.expect(memory.has_room(), "nothing is in use");
    });
  });
}

TEST_CASE("simulated: who was asked for slots may end there, and then look for memory itself") {
  const SimulationReport report = simulate(1, [](Simulation& sim) {
    IdleMemory memory;
    bool served = false;
    Ref<void> asked(&memory, [&](void*) { served = memory.has_room(); });
    memory.slots->also_ask(asked, [&] { asked.reset(); });
    sim.expect(memory.fill_a_slot().ok(), "there was room");
    memory.allocator->empty_cache();
    sim.expect(served, "it got memory");
  });
  CHECK_MESSAGE(report.ok(), report.failure);
}

}  // namespace heddle::runtime
