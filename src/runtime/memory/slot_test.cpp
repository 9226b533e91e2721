// A slot by itself: what it holds, what it counts, and when the next user may have it.
#include "runtime/memory/slot.h"

#include <doctest/doctest.h>

#include <optional>
#include <vector>

#include "runtime/memory/slots.h"
#include "runtime/test_device_fixture.h"

namespace heddle::runtime {

namespace {

constexpr size_t kPorts[] = {0, 1};

// A slot with an arena and two ports each way.
struct SlotFixture {
  explicit SlotFixture(bool unified)
      : device(std::make_shared<test::TestDevice>(
            test::TestOptions{.asynchronous = true, .binds_caller_memory = unified, .unified = unified})),
        allocator(*Allocator::make(device, {})),
        slot(std::in_place, allocator, unified, held) {
    REQUIRE(slot->reserve_arena(64).ok());
    for (const size_t port : kPorts) {
      REQUIRE(slot->reserve_input(port, 64).ok());
      REQUIRE(slot->reserve_output(port, 64).ok());
    }
  }
  std::vector<Ref<device::Buffer>> buffers() const {
    std::vector<Ref<device::Buffer>> all{slot->arena()};
    for (const size_t port : kPorts) {
      for (const Slot::Port& each : {slot->input(port), slot->output(port)}) {
        all.push_back(each.device);
        if (each.staging != each.device) all.push_back(each.staging);
      }
    }
    return all;
  }

  Ref<Slot::Held> held = std::make_shared<Slot::Held>();
  Ref<test::TestDevice> device;
  Ref<Allocator> allocator;
  std::optional<Slot> slot;
};

}  // namespace

TEST_CASE("a slot is quiet unless unfinished work names one of its buffers, whichever") {
  for (const bool unified : {false, true}) {
    CAPTURE(unified);
    SlotFixture f(unified);
    const device::Point never{std::make_shared<device::Timeline>(), 1};
    CHECK(f.buffers().size() == (unified ? 5 : 9));
    for (size_t i = 0; i < f.buffers().size(); ++i) {
      CAPTURE(i);
      SlotFixture each(unified);
      CHECK(each.slot->is_quiet());
      each.buffers()[i]->mark_read(never);
      CHECK_FALSE(each.slot->is_quiet());
    }
  }
}

TEST_CASE("what a slot holds is counted by kind, grows where it has to, and is given back with the slot") {
  for (const bool unified : {false, true}) {
    CAPTURE(unified);
    SlotFixture f(unified);
    const uint64_t staged = unified ? 0 : 4 * 64;
    CHECK(f.held->device.load_relaxed() == 5 * 64);
    CHECK(f.held->staging.load_relaxed() == staged);
    const auto before = f.buffers();
    REQUIRE(f.slot->reserve_input(1, 64).ok());
    REQUIRE(f.slot->reserve_arena(64).ok());
    CHECK(f.buffers() == before);  // what is large enough stays
    REQUIRE(f.slot->reserve_input(1, 65).ok());
    CHECK(f.slot->input(1).staging->bytes() == 65);
    CHECK(f.held->device.load_relaxed() == 6 * 64);
    CHECK(f.held->staging.load_relaxed() == staged + (unified ? 0 : 64));
    CHECK_FALSE(f.slot->holds_arena(65));
    CHECK(f.slot->holds_arena(64));
    f.slot.reset();
    CHECK(f.held->device.load_relaxed() == 0);
    CHECK(f.held->staging.load_relaxed() == 0);
  }
}

TEST_CASE("of slots that come back as many wait as may, and one more gives its memory back") {
  const auto device = std::make_shared<test::TestDevice>(test::TestOptions{});
  const auto slots = std::make_shared<Slots>(*Allocator::make(device, {}), true, 2);
  {
    const Ref<Slot> taken[] = {slots->take(), slots->take(), slots->take()};
    for (const Ref<Slot>& each : taken) REQUIRE(each->reserve_arena(64).ok());
    CHECK(slots->held().device.load_relaxed() == 3 * 64);
  }
  CHECK(slots->held().device.load_relaxed() == 2 * 64);
}

}  // namespace heddle::runtime
